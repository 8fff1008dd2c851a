// Package server serves the pages to browsers: it checks who asks, and sends the sections of open pages that have
// changed. No request changes anything.
//
// Access decides who may look: Local on this machine, by a token. The package makes no pages.
//
// Start with New.
package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

const (
	pageTimeout  = 30 * time.Second // to make a page
	writeTimeout = 20 * time.Second // for a browser to take an answer
	maxAddress   = 4 << 10          // bytes of a path with its query
	maxHeader    = 32 << 10         // bytes of the headers of a request
	maxError     = 2 << 10          // bytes of the text of an error
	maxLogin     = 10 * time.Second // the time until a form has arrived
)

// LoginAddress is the address of the form of an Access that has one.
const LoginAddress = "/login"

// An Access decides who may look.
type Access interface {
	// Admit returns the request with its user in the context. If it returns nil, it has answered the request. Assets
	// are not secret, and a page that refuses a request needs the stylesheet.
	Admit(http.ResponseWriter, *http.Request) *http.Request
	// Viewer returns a name for the rights of an admitted request. Requests with the same name share the work for
	// pages.
	Viewer(*http.Request) string
	// User returns the name of the user of an admitted request, for the limits of a user.
	User(*http.Request) string
}

// A Server serves the pages of a site.
type Server struct {
	Site   *pages.Site
	Access Access
	// Recheck is the interval after which open pages are made again without a change: rights may have been taken away.
	// It is 0 for never.
	Recheck time.Duration

	renders  chan struct{} // pages that are being made
	mu       sync.Mutex
	users    map[string]*user
	feeds    map[string]*feed
	streams  map[string]int // open streams of a browser
	requests int            // requests in progress, with streams
	idle     *time.Timer    // runs while there are none; nil without a limit
	after    time.Duration  // the time of idle
	end      sync.Once
	ended    chan struct{} // closed by End
	farewell string        // sent to open pages when the server ends
}

// New returns a server.
func New(site *pages.Site, access Access) *Server {
	return &Server{Site: site, Access: access, renders: make(chan struct{}, maxRenders), users: map[string]*user{},
		feeds: map[string]*feed{}, streams: map[string]int{}, ended: make(chan struct{})}
}

// HTTP returns a server of connections, with limits. There is no limit for a whole answer, since streams of events do
// not end: each write has one.
func (s *Server) HTTP() *http.Server {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	server.RegisterOnShutdown(func() { s.End("") })
	return server
}

// End ends the streams of events. Open pages show the text, and do not connect again. Without a text, they do.
func (s *Server) End(farewell string) {
	s.end.Do(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.farewell = farewell
		close(s.ended)
		for _, f := range s.feeds {
			f.cancel()
		}
	})
}

// WhenIdle calls a function when there was no request for some time. An open stream is a request.
func (s *Server) WhenIdle(after time.Duration, call func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle, s.after = time.AfterFunc(after, call), after
	if s.requests > 0 {
		s.idle.Stop()
	}
}

// headers are sent with each answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

// ServeHTTP serves a page, an asset, or the changes of a page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	// The error means that w is not a connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pageTimeout + writeTimeout))
	if r.ContentLength != 0 {
		deadline := time.Now() // nothing reads the body, and the connection does not wait for it
		if r.URL.Path == LoginAddress {
			deadline = deadline.Add(maxLogin)
		}
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
	}
	switch {
	case len(r.RequestURI) > maxAddress && r.URL.Path != eventsAddress: // which has the address of a page, escaped
		Refuse(w, http.StatusRequestURITooLong, "The address is too long", "")
		return
	case !isOwn(r):
		Refuse(w, http.StatusForbidden, "Not allowed", "Another site has sent this request.")
		return
	}
	if r = s.Access.Admit(w, r); r == nil {
		return
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		Refuse(w, http.StatusMethodNotAllowed, "Not allowed", "The pages can only be read.")
		return
	case IsAsset(r):
		assets[r.URL.Path].serve(w, r)
		return
	}
	u := s.begin(r)
	if u == nil {
		w.Header().Set("Retry-After", "10")
		Refuse(w, http.StatusServiceUnavailable, "Too many requests", "Close some pages, or try again later.")
		return
	}
	defer s.finish(u)
	if r.URL.Path == eventsAddress {
		s.serveEvents(w, r, u)
		return
	}
	s.servePage(w, r, u)
}

// isOwn reports whether a request comes from a page of this server, or opens one. Old browsers do not tell.
func isOwn(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	default: // a link on another site
		return r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
}

// An asset is a file that does not change while the program runs.
type asset struct{ kind, content, tag string }

func newAsset(kind, content string) asset {
	return asset{kind, content, fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(content)))[:16])}
}

const iconAddress = "/favicon.ico"

var assets = map[string]asset{
	look.StyleAddress:  newAsset("text/css; charset=utf-8", look.Style),
	look.ScriptAddress: newAsset("text/javascript; charset=utf-8", look.Script),
	iconAddress: newAsset("image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">`+
		`<path fill="#2f6feb" d="M1 10h4v5H1zM6 6h4v9H6zM11 1h4v14h-4z"/></svg>`),
}

// IsAsset reports whether a request is for a file that has nothing of the cluster.
func IsAsset(r *http.Request) bool { return assets[r.URL.Path].content != "" }

// serve sends an asset. A browser keeps it, and asks each time whether it is the same.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", a.tag)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(a.content))
}

// servePage serves the page of an address, or why there is none.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, u *user) {
	address, err := pageAddress(r.URL.RequestURI())
	var rendered *look.Rendered
	if err == nil {
		rendered, _, err = s.render(r.Context(), u, address)
	}
	status := http.StatusOK
	if err != nil {
		rendered, status = failure(err)
	}
	events := eventsAddress + "?" + url.Values{"page": {r.URL.RequestURI()}}.Encode()
	var document bytes.Buffer
	if err := rendered.Serve(&document, events, s.Site.Hub.Cluster.Now()); err != nil {
		Refuse(w, http.StatusInternalServerError, "The page can't be written", printable.Line(err.Error()))
		return
	}
	send(w, status, &document)
}

// pageAddress returns the address of a page, without another host in it, or steps up.
func pageAddress(text string) (*url.URL, error) {
	address, err := url.ParseRequestURI(text)
	if err == nil && len(address.Path) > 1 {
		address.Path = strings.TrimSuffix(address.Path, "/")
	}
	if err != nil || len(text) > maxAddress || address.IsAbs() || address.Host != "" ||
		path.Clean(address.Path) != address.Path {
		return nil, pages.ErrNotFound
	}
	return address, nil
}

// render makes a page. An error in a page must not end the program, which may be the operator.
func (s *Server) render(ctx context.Context, u *user, address *url.URL) (_ *look.Rendered, topic live.Topic,
	err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Printf("page %s: %v\n%s", printable.Line(address.String()), cause, debug.Stack())
			err = fmt.Errorf("the page has an error, which the program has logged: please report it: %v", cause)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	end, err := s.takeTurn(ctx, u)
	if err != nil {
		return nil, topic, err
	}
	defer end()
	content, err := s.Site.Page(ctx, address)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, topic, fmt.Errorf("the cluster did not respond within %s", pageTimeout)
	case err != nil:
		return nil, topic, err
	}
	rendered, err := content.Render()
	return rendered, content.Topic, err
}

// failure returns the page on an error, and its status. It has no version: whatever comes later is different.
func failure(err error) (*look.Rendered, int) {
	text := printable.Truncate(printable.Line(err.Error()), maxError)
	switch {
	case errors.Is(err, pages.ErrNotFound):
		return message("Not found", "Runlevel has no such page."), http.StatusNotFound
	case errors.Is(err, pages.ErrForbidden):
		return message("Not allowed", text), http.StatusForbidden
	case errors.Is(err, errBusy):
		return message("Too many requests", text), http.StatusServiceUnavailable
	default:
		return message("The cluster can't be read", text), http.StatusBadGateway
	}
}

// message returns a page with a sentence.
func message(title, text string) *look.Rendered {
	page := look.Page{Title: title, Trail: []look.Link{{Text: "Releases", Address: "/"}}}
	if text != "" {
		page.Sections = []look.Section{{ID: "error", Body: g.Group{h.P(look.Text(text))}}}
	}
	rendered, err := page.Render()
	if err != nil { // writes to memory do not fail
		panic(err)
	}
	rendered.Version = ""
	return rendered
}

// Refuse answers with a page that says why the request is refused, and does not try again.
func Refuse(w http.ResponseWriter, status int, title, text string) {
	var document bytes.Buffer
	_ = message(title, text).Serve(&document, "", time.Time{}) // writes to memory do not fail
	send(w, status, &document)
}

func send(w http.ResponseWriter, status int, document *bytes.Buffer) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = document.WriteTo(w) // the browser has gone
}
