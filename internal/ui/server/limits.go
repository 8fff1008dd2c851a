package server

import (
	"context"
	"errors"
	"net/http"
)

// The limits protect the process, which may be the operator: a user who may look can neither use up its memory nor hold
// up the pages of others.
const (
	maxRequests       = 1000 // in progress, with streams
	maxRequestsOfUser = 100
	maxFeeds          = 200
	maxFeedsOfUser    = 20
	maxRenders        = 8 // pages that are made at the same time
	maxRendersOfUser  = 4
)

// errBusy is the error for a page that had to wait too long for others.
var errBusy = errors.New("too many pages are requested at the same time: try again in a moment")

// A user counts what the requests of a user use. The mutex of the server guards the numbers.
type user struct {
	name            string
	requests, feeds int
	renders         chan struct{}
}

// begin counts a request, and returns its user. It returns nil if there are too many in progress.
func (s *Server) begin(r *http.Request) *user {
	name := s.Access.User(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.users[name]
	if u == nil {
		u = &user{name: name, renders: make(chan struct{}, maxRendersOfUser)}
	}
	if s.requests >= maxRequests || u.requests >= maxRequestsOfUser {
		return nil
	}
	s.users[name] = u
	u.requests++
	s.requests++
	if s.idle != nil {
		s.idle.Stop()
	}
	return u
}

// finish ends a request that begin has counted.
func (s *Server) finish(u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.requests--
	s.forget(u)
	if s.requests--; s.requests == 0 && s.idle != nil {
		s.idle.Reset(s.after)
	}
}

// forget removes a user without requests and feeds.
func (s *Server) forget(u *user) {
	if u.requests == 0 && u.feeds == 0 {
		delete(s.users, u.name)
	}
}

// takeTurn waits until a page may be made, and returns a function that ends the turn.
func (s *Server) takeTurn(ctx context.Context, u *user) (func(), error) {
	select {
	case u.renders <- struct{}{}:
	case <-ctx.Done():
		return nil, errBusy
	}
	select {
	case s.renders <- struct{}{}:
		return func() { <-s.renders; <-u.renders }, nil
	case <-ctx.Done():
		<-u.renders
		return nil, errBusy
	}
}
