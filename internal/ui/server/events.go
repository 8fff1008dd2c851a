package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

const (
	eventsAddress = "/events"
	heartbeat     = 15 * time.Second // so that a dead connection is noticed
	linger        = 5 * time.Second  // a feed without viewers
	retryInterval = 3 * time.Second  // after a page could not be made; it doubles
	longestRetry  = 30 * time.Second
	minPause      = 200 * time.Millisecond // between two versions of a page
	// maxStreams limits the streams of a browser over HTTP/1.1. A browser opens 6 connections to a host and port, for
	// all tabs, so that a seventh tab would not load. Further streams end after the changes, and their pages ask
	// again after pollInterval. Hidden tabs have no stream (see page.js). So any number of tabs works.
	maxStreams   = 4
	pollInterval = 2 * time.Second
	busyInterval = 15 * time.Second // of streams without a feed
)

// A feed makes a page again after each change, for all who have it open. The mutex of the server guards it.
type feed struct {
	viewers int
	cancel  context.CancelFunc

	page    *look.Rendered // the last version; nil before the first
	err     error          // why it is not current
	changed chan struct{}  // closed when page or err changes
}

// join returns the feed of an address for a request, which calls leave later. If there are too many feeds, it returns
// one without changes, and the time after which the browser asks again.
func (s *Server) join(r *http.Request, u *user, address *url.URL) (_ *feed, pause time.Duration, leave func()) {
	key := s.Access.Viewer(r) + " " + address.String()
	s.mu.Lock()
	f := s.feeds[key]
	if f == nil {
		f = &feed{changed: make(chan struct{})}
		if len(s.feeds) >= maxFeeds || u.feeds >= maxFeedsOfUser {
			s.mu.Unlock()
			page, _, err := s.render(r.Context(), u, address)
			s.publish(f, page, err)
			return f, busyInterval, func() {}
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		f.cancel = cancel
		s.feeds[key] = f
		u.feeds++
		go s.follow(ctx, f, u, address)
	}
	defer s.mu.Unlock()
	f.viewers++
	return f, 0, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f.viewers--
		time.AfterFunc(linger, func() { s.drop(key, f, u) })
	}
}

// drop ends a feed that nobody looks at.
func (s *Server) drop(key string, f *feed, u *user) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.viewers == 0 && s.feeds[key] == f {
		delete(s.feeds, key)
		f.cancel()
		u.feeds--
		s.forget(u)
	}
}

// follow makes a page again after each change, until the context ends.
func (s *Server) follow(ctx context.Context, f *feed, u *user, address *url.URL) {
	var changes <-chan struct{}
	pause := retryInterval
	for ctx.Err() == nil {
		began := time.Now()
		page, topic, err := s.render(ctx, u, address)
		s.publish(f, page, err)
		if changes == nil && err == nil {
			changes = s.Site.Hub.Changes(ctx, topic)
			continue // there may have been a change before
		}
		var retry <-chan time.Time
		if err == nil {
			pause = retryInterval
		} else {
			retry = time.After(pause)
			pause = min(2*pause, longestRetry)
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(minPause, 2*time.Since(began))): // a large page uses a third of a core at most
		}
		var recheck <-chan time.Time
		if s.Recheck > 0 {
			recheck = time.After(s.Recheck)
		}
		select {
		case <-ctx.Done():
		case <-changes:
		case <-retry:
		case <-recheck:
		}
	}
}

// publish sets the last version of a page, or why it is not current.
func (s *Server) publish(f *feed, page *look.Rendered, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && f.err == nil && f.page != nil && f.page.Version == page.Version,
		err != nil && f.err != nil && err.Error() == f.err.Error():
		return
	case err == nil:
		f.page = page
	case errors.Is(err, pages.ErrForbidden): // the right was taken away
		f.page = nil
	}
	f.err = err
	close(f.changed)
	f.changed = make(chan struct{})
}

// A stream sends the changes of a page to a browser.
type stream struct {
	server  *Server
	out     http.ResponseWriter
	have    string          // version of the page of the browser; empty if it has only an error
	sent    *look.Rendered  // the version that was sent last
	changed <-chan struct{} // closed when there is another version
}

// serveEvents sends the changes of a page as events: "page" with the changed sections, "trouble" if the page is not
// current, "later" before a stream ends, to be opened again, and "end" before the server ends.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, u *user) {
	address, err := pageAddress(r.URL.Query().Get("page"))
	if err != nil {
		Refuse(w, http.StatusNotFound, "Not found", "There is no such page.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	pause := s.open(r)
	defer s.close(r)
	out := &stream{server: s, out: w, have: r.URL.Query().Get("have")}
	if out.write(": open\n\n") != nil {
		return
	}
	f, busy, leave := s.join(r, u, address)
	defer leave()
	pause = max(pause, busy)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for err == nil {
		s.mu.Lock()
		page, trouble, changed := f.page, f.err, f.changed
		s.mu.Unlock()
		if err = out.update(page, trouble, changed); err != nil {
			return
		}
		if pause > 0 && (page != nil || trouble != nil) {
			_ = out.event("later", fmt.Sprint(pause.Milliseconds()), "")
			return
		}
		select {
		case <-changed:
		case <-beat.C:
			err = out.write(": beat\n\n")
		case <-r.Context().Done():
			return
		case <-s.ended:
			out.end()
			return
		}
	}
}

// open counts a stream of a browser. If it has too many, it returns the time after which the browser asks again.
func (s *Server) open(r *http.Request) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[s.browser(r)]++
	if r.ProtoMajor == 1 && s.streams[s.browser(r)] > maxStreams {
		return pollInterval
	}
	return 0
}

func (s *Server) close(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.browser(r)
	if s.streams[name]--; s.streams[name] == 0 {
		delete(s.streams, name)
	}
}

// browser returns a name of the browser of a request.
func (s *Server) browser(r *http.Request) string { return s.Access.Viewer(r) + " " + r.UserAgent() }

// end sends that the server ends.
func (s *stream) end() {
	if s.server.farewell != "" {
		_ = s.event("end", s.server.farewell, "")
	}
}

// update sends the changes, unless they are those of the last call. Changed identifies them.
func (s *stream) update(page *look.Rendered, trouble error, changed <-chan struct{}) error {
	if s.changed == changed {
		return nil
	}
	s.changed = changed
	now := s.server.Site.Hub.Cluster.Now()
	switch {
	case errors.Is(trouble, pages.ErrForbidden), trouble != nil && s.have == "" && s.sent == nil:
		failed, _ := failure(trouble) // the browser shows it instead of the page
		s.have, s.sent = "", nil
		return s.send(failed, nil, now)
	case trouble != nil:
		return s.event("trouble", printable.Truncate(printable.Line(trouble.Error()), maxError), "")
	case page == nil:
		return nil
	}
	earlier := s.sent
	s.sent = page
	if earlier == nil && s.have == page.Version {
		earlier = page
	}
	s.have = page.Version
	return s.send(page, earlier, now)
}

func (s *stream) send(page, earlier *look.Rendered, now time.Time) error {
	content, err := page.Change(earlier, now)
	if err != nil {
		return err
	}
	return s.event("page", string(content), page.Version)
}

// event sends an event with a line of data.
func (s *stream) event(kind, data, id string) error {
	return s.write("event: " + kind + "\nid: " + id + "\ndata: " + data + "\n\n")
}

// write sends a text at once. A browser that does not take it loses the connection.
func (s *stream) write(text string) error {
	control := http.NewResponseController(s.out)
	if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := s.out.Write([]byte(text)); err != nil {
		return err
	}
	return control.Flush()
}
