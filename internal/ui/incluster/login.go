package incluster

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

const (
	loginAddress  = "/login"
	logoutAddress = "/logout"
	sessionCookie = "__Host-runlevel-session" // browsers take this prefix only over TLS, for this host and all paths

	maxSessions    = 1000
	maxSession     = 8 * time.Hour
	maxClients     = 1000
	maxFailures    = 10 // failed logins of a client, in a row with pauses below failureMemory
	failureMemory  = time.Minute
	maxForm        = 64 << 10         // bytes
	maxLogin       = 10 * time.Second // to send the form
	tokenParameter = "token"
	nextParameter  = "next" // the page to open after the login
)

// login begins a session with a token.
func (a *access) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(maxLogin)) // fails without a connection
	client, _, _ := net.SplitHostPort(r.RemoteAddr)
	known, _ := a.failures.Get(client)
	failures, _ := known.(int)
	if failures >= maxFailures {
		w.Header().Set("Retry-After", "60")
		askForToken(w, r, http.StatusTooManyRequests, "Too many logins have failed. Try again in a minute.")
		return
	}
	token := strings.TrimSpace(r.PostFormValue(tokenParameter))
	user, err := a.reviewer.User(r.Context(), token)
	switch {
	case err != nil:
		askForToken(w, r, http.StatusBadGateway, "The token can't be reviewed: "+printable.Line(err.Error()))
		return
	case user == nil:
		a.failures.Add(client, failures+1, failureMemory)
		askForToken(w, r, http.StatusUnauthorized, "The API server does not accept this token. It may have expired.")
		return
	}
	session := rand.Text()
	a.sessions.Add(session, token, maxSession)
	setCookie(w, session, int(maxSession.Seconds()))
	next, err := url.ParseRequestURI(r.PostFormValue(nextParameter))
	if err != nil {
		next = &url.URL{}
	}
	page := url.URL{Path: "/" + strings.TrimLeft(next.Path, "/"), RawQuery: next.RawQuery} // no other host
	http.Redirect(w, r, page.String(), http.StatusSeeOther)
}

// logout ends a session.
func (a *access) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie); err == nil {
		a.sessions.Remove(cookie.Value)
	}
	setCookie(w, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// setCookie sets the session of a browser for some seconds. A negative number removes it.
func setCookie(w http.ResponseWriter, session string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: session, Path: "/", MaxAge: seconds,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// askForToken answers with the form of the login.
func askForToken(w http.ResponseWriter, r *http.Request, status int, problem string) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		w.Header().Set("Refresh", "0") // a link on another site has opened the page, so that it came without the cookie
	}
	next := r.URL.RequestURI()
	if r.URL.Path == loginAddress || r.URL.Path == logoutAddress {
		next = cmp.Or(r.PostFormValue(nextParameter), "/")
	}
	send(w, status, "Log in",
		g.If(problem != "", h.Div(h.Role("alert"), look.Notice(look.Bad, h.P(look.Text(problem))))),
		h.Form(h.Method("post"), h.Action(loginAddress),
			h.Input(h.Type("hidden"), h.Name(nextParameter), h.Value(next)),
			h.Label(g.Text("Token of a user or ServiceAccount"),
				h.Input(h.Name(tokenParameter), h.Type("password"), h.AutoComplete("off"), h.Required())),
			h.Button(h.Type("submit"), g.Text("Log in")),
		),
		h.P(g.Text("You see what your rights in the cluster allow. This command prints a token: "),
			look.Command("kubectl create token NAME --namespace NAMESPACE")))
}

// offerLogout answers with a form that ends the session.
func offerLogout(w http.ResponseWriter, user string) {
	send(w, http.StatusOK, "Log out",
		h.P(look.Text("You are logged in as "+user+".")),
		h.Form(h.Method("post"), h.Action(logoutAddress), h.Button(h.Type("submit"), g.Text("Log out"))))
}

// send answers with a page that does not change.
func send(w http.ResponseWriter, status int, title string, body ...g.Node) {
	page := look.Page{Title: title, Sections: []look.Section{{ID: "session", Body: body}}}
	var document bytes.Buffer
	rendered, err := page.Render()
	if err == nil {
		err = rendered.Serve(&document, "", time.Time{})
	}
	if err != nil { // writes to memory do not fail
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = document.WriteTo(w)
}
