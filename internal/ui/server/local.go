package server

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A Local admits the user who has started the program on this machine.
//
// The first address has a token, for which the browser gets a cookie. The token is valid as long as the process lives,
// so that the printed address also works in a second browser. The cookie is another secret.
//
// Other programs of this machine may send requests, and so may pages of other sites by way of the browser, also under
// names that lead to this machine (DNS rebinding). So the host must be this server under one of its own names.
type Local struct {
	hosts         []string
	port          string
	token, secret string
}

const tokenParameter = "token"

// NewLocal returns the access to a server on a port of this machine.
func NewLocal(port int) *Local {
	l := &Local{port: strconv.Itoa(port), token: rand.Text(), secret: rand.Text()}
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		l.hosts = append(l.hosts, net.JoinHostPort(name, l.port))
	}
	if l.port == "80" { // browsers omit it
		l.hosts = []string{"127.0.0.1", "[::1]", "localhost"}
	}
	return l
}

// Address returns the first address of a page: with the token.
func (l *Local) Address(page string) string {
	return "http://" + l.hosts[0] + page + "?" + url.Values{tokenParameter: {l.token}}.Encode()
}

// WriteRedirect writes a page that opens an address. Unlike after a redirect by a header, the browser then sends its
// cookies also if a link on another site has opened the page.
func WriteRedirect(out io.Writer, address string) error {
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(g.Attr("http-equiv", "refresh"), h.Content("0; url="+address)),
			h.TitleEl(g.Text("Runlevel")),
		),
		h.Body(h.A(h.Href(address), g.Text("Open the page"))),
	)).Render(out)
}

// Admit admits requests with the cookie, and exchanges the token for one.
func (l *Local) Admit(w http.ResponseWriter, r *http.Request) *http.Request {
	if !slices.Contains(l.hosts, r.Host) {
		Refuse(w, http.StatusForbidden, "Not allowed", "The address must begin with http://"+l.hosts[0]+
			". A forwarded port must have the same number on both sides.")
		return nil
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		Refuse(w, http.StatusForbidden, "Not allowed", "Another site has sent this request.")
		return nil
	}
	name := "runlevel-" + l.port // cookies of a host are sent to all its ports
	hasCookie := slices.ContainsFunc(r.CookiesNamed(name), func(c *http.Cookie) bool {
		return equal(c.Value, l.secret)
	})
	query := r.URL.Query()
	isElsewhere := r.Header.Get("Sec-Fetch-Site") == "cross-site" // a link, without the cookie
	switch hasToken := query.Has(tokenParameter); {
	case IsAsset(r):
	case hasToken && (hasCookie || equal(query.Get(tokenParameter), l.token)):
		http.SetCookie(w, &http.Cookie{Name: name, Value: l.secret, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		query.Del(tokenParameter)
		redirect(w, http.StatusOK, r.URL.Path, query)
		return nil
	case !hasCookie && isElsewhere:
		redirect(w, http.StatusUnauthorized, r.URL.Path, query)
		return nil
	case !hasCookie:
		Refuse(w, http.StatusUnauthorized, "Open the address that was printed",
			"This page needs the address with the token, which \"runlevel ui\" prints in the terminal where it runs. "+
				"After it was started again, the address is another one.")
		return nil
	}
	return r
}

// redirect opens a page of this server.
func redirect(w http.ResponseWriter, status int, path string, query url.Values) {
	page := url.URL{Path: "/" + strings.TrimLeft(path, "/"), RawQuery: query.Encode()}
	var document bytes.Buffer
	_ = WriteRedirect(&document, page.String()) // writes to memory do not fail
	send(w, status, &document)
}

// Viewer returns the same name for all requests: they have the rights of the kubeconfig.
func (l *Local) Viewer(*http.Request) string { return "local" }

// User returns the same name for all requests.
func (l *Local) User(*http.Request) string { return "local" }

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
