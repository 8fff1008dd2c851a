package incluster

import (
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

const (
	maxSessions       = 1000
	maxSessionsOfUser = 10
	maxSession        = 8 * time.Hour
)

// sessions are the sessions of a replica. If there are too many, the oldest ends: first that of the same user.
type sessions struct {
	mu  sync.Mutex
	all []userSession // in the order of their begin
}

type userSession struct {
	id, user, token string
	end             time.Time
}

// begin begins a session, and returns its ID.
func (s *sessions) begin(user, token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, count, oldest := time.Now(), 0, 0
	s.all = slices.DeleteFunc(s.all, func(known userSession) bool { return known.end.Before(now) })
	for i, known := range slices.Backward(s.all) {
		if known.user == user {
			count, oldest = count+1, i
		}
	}
	switch {
	case count >= maxSessionsOfUser:
		s.all = slices.Delete(s.all, oldest, oldest+1)
	case len(s.all) >= maxSessions:
		s.all = slices.Delete(s.all, 0, 1)
	}
	begun := userSession{rand.Text(), user, token, now.Add(maxSession)}
	s.all = append(s.all, begun)
	return begun.id
}

// token returns the token of a session; "" if there is no such session.
func (s *sessions) token(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.all {
		if known.id == id && time.Now().Before(known.end) {
			return known.token
		}
	}
	return ""
}

// end ends a session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(known userSession) bool { return known.id == id })
}
