package server

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Local admits the user who has started the program on this machine.
//
// The first address has a token, for which the browser gets a cookie. The token is valid as long as the process lives,
// so that the printed address also works in a second browser. A browser that the program starts gets a token for one
// use: other users of the machine see the arguments of commands. The cookie is another secret.
//
// Other programs of this machine may send requests, and so may pages of other sites by way of the browser, also under
// names that lead to this machine (DNS rebinding). So the host must be this server under one of its own names.
type Local struct {
	hosts         []string
	port          string
	token, secret string

	mu   sync.Mutex
	once string // token for one use; empty after it
}

const tokenParameter = "token"

// NewLocal returns the access to a server on a port of this machine.
func NewLocal(port int) *Local {
	l := &Local{port: strconv.Itoa(port), token: rand.Text(), secret: rand.Text()}
	for _, name := range []string{"127.0.0.1", "::1", "localhost"} {
		l.hosts = append(l.hosts, net.JoinHostPort(name, l.port))
	}
	return l
}

// Address returns the first address of a page: with the token.
func (l *Local) Address(page string) string {
	return l.address(page, l.token)
}

// AddressOnce is Address for one browser, which opens it once.
func (l *Local) AddressOnce(page string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.once = rand.Text()
	return l.address(page, l.once)
}

func (l *Local) address(page, token string) string {
	return "http://" + l.hosts[0] + page + "?" + url.Values{tokenParameter: {token}}.Encode()
}

// accepts reports whether a token is valid.
func (l *Local) accepts(token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.once != "" && equal(token, l.once) {
		l.once = ""
		return true
	}
	return equal(token, l.token)
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
	switch hasToken := query.Has(tokenParameter); {
	case IsAsset(r):
	case hasToken && (hasCookie || l.accepts(query.Get(tokenParameter))):
		http.SetCookie(w, &http.Cookie{Name: name, Value: l.secret, Path: "/", HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
		query.Del(tokenParameter)
		page := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: query.Encode()}
		http.Redirect(w, r, page.String(), http.StatusSeeOther)
		return nil
	case !hasCookie:
		Refuse(w, http.StatusUnauthorized, "Open the address that was printed",
			"This page needs the address with the token, which \"runlevel ui\" prints in the terminal where it runs. "+
				"After it was started again, the address is another one.")
		return nil
	}
	return r
}

// Viewer returns the same name for all requests: they have the rights of the kubeconfig.
func (l *Local) Viewer(*http.Request) string { return "local" }

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
