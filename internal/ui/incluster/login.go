package incluster

import (
	"bytes"
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/server"
)

const (
	loginAddress  = server.LoginAddress
	logoutAddress = "/logout"

	maxForm        = 64 << 10 // bytes
	tokenParameter = "token"
	nextParameter  = "next" // the page to open after the login
)

// login begins a session with a token.
func (a *access) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token := strings.TrimSpace(r.PostFormValue(tokenParameter))
	user, refused := a.check(r.Context(), token)
	switch {
	case refused != nil && refused.status == http.StatusUnauthorized:
		askForToken(w, r, refused.status, "The API server does not accept this token. It may have expired.")
		return
	case refused != nil && refused.status == http.StatusForbidden:
		server.Refuse(w, refused.status, refused.title, refused.text)
		return
	case refused != nil:
		askForToken(w, r, refused.status, refused.title+". "+refused.text)
		return
	}
	setCookie(w, r, a.sessions.begin(user.Username, token), maxSession)
	next, err := url.ParseRequestURI(r.PostFormValue(nextParameter))
	if err != nil {
		next = &url.URL{}
	}
	page := url.URL{Path: "/" + strings.TrimLeft(next.Path, "/"), RawQuery: next.RawQuery} // no other host
	http.Redirect(w, r, page.String(), http.StatusSeeOther)
}

// logout ends a session.
func (a *access) logout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(sessionCookie(r)); err == nil {
		a.sessions.end(cookie.Value)
	}
	setCookie(w, r, "", -time.Second)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// sessionCookie returns the name of the cookie. Browsers take its prefix only over TLS, for this host and all paths.
// They send the cookies of a host to all its ports, which may be forwarded to several clusters.
func sessionCookie(r *http.Request) string {
	return "__Host-runlevel-session-" + cmp.Or((&url.URL{Host: r.Host}).Port(), "443")
}

// setCookie sets the session of a browser for some time. A negative time removes it.
func setCookie(w http.ResponseWriter, r *http.Request, session string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: sessionCookie(r), Value: session, Path: "/", MaxAge: int(age.Seconds()),
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
