// Package server serves the pages to browsers: it checks who asks, and sends the sections of open pages that have
// changed. No request changes anything.
//
// Access decides who may look: Local on this machine, by a token. It makes no pages.
//
// Start with Server.
package server

import (
	"net/http"

	"github.com/runlevel/runlevel/internal/ui/pages"
)

// An Access decides who may look.
type Access interface {
	// Admit returns the request with its user in the context. If it returns nil, it has answered the request.
	Admit(http.ResponseWriter, *http.Request) *http.Request
}

// A Server serves the pages of a site.
type Server struct {
	Site   *pages.Site
	Access Access
}

// ServeHTTP serves a page, an asset, or the changes of a page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r = s.Access.Admit(w, r); r == nil {
		return
	}
	http.NotFound(w, r)
}
