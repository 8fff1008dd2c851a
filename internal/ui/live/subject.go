package live

import (
	"context"
	"sync"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/waiter"
)

// A subject is a topic that someone reads or subscribes to: the result of the last read, and the watches that show when
// it has changed.
type subject struct {
	hub   *Hub
	topic Topic

	mu          sync.Mutex
	generation  int // number of changes seen
	result      any
	err         error
	readOf      int           // the generation of the result
	reading     chan struct{} // closed when the current read ends; nil without one
	took        time.Duration // duration of the last read
	subscribers map[chan struct{}]bool
	watches     *watches // nil without subscribers
}

func newSubject(h *Hub, topic Topic) *subject {
	return &subject{hub: h, topic: topic, subscribers: map[chan struct{}]bool{}, readOf: -1}
}

const (
	readTimeout = time.Minute
	linger      = 10 * time.Second // the time for which the last result is kept without subscribers
)

// read returns the result of the last read if nothing has changed since, or that of a new one. All who ask meanwhile
// share it.
func (s *subject) read(ctx context.Context) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches == nil && s.reading == nil { // changes are not seen
		s.generation++
	}
	for wanted := s.generation; s.readOf < wanted; {
		if s.reading == nil {
			s.reading = make(chan struct{})
			go s.readOnce(context.WithoutCancel(ctx), s.generation, s.reading)
		}
		ended := s.reading
		s.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return s.result, s.err
}

// readOnce reads the topic. If it can't be read, the last result stays.
func (s *subject) readOnce(ctx context.Context, generation int, ended chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := time.Now()
	result, err := s.hub.read(ctx, s.topic)
	if ctx.Err() != nil {
		err = waiter.Outage(ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !waiter.IsOutage(err) {
		s.took = time.Since(began)
		if result != nil {
			s.result = result
		}
	}
	s.err, s.readOf, s.reading = err, generation, nil
	if s.watches != nil {
		s.watches.follow(s.sources())
		s.watches.setComplete(err == nil && isComplete(result))
	} else {
		time.AfterFunc(linger, s.drop)
	}
	close(ended)
}

// drop forgets a subject that nobody uses.
func (s *subject) drop() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches == nil && s.reading == nil && s.hub.subjects[s.topic] == s {
		delete(s.hub.subjects, s.topic)
	}
	if len(s.hub.subjects) == 0 {
		s.hub.files = map[Topic]*appliedFiles{}
	}
}

// subscribe returns a channel of changes until the context ends.
func (s *subject) subscribe(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[changes] = true
	if s.watches == nil {
		s.watches = startWatches(context.WithoutCancel(ctx), s)
		s.watches.follow(s.sources())
		go s.notify(s.watches)
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, changes)
		if len(s.subscribers) == 0 {
			s.watches.end()
			s.watches = nil
			time.AfterFunc(linger, s.drop)
		}
	})
	return changes
}

// Reads of a topic that changes all the time take at most a quarter of the time.
const (
	pausePerRead  = 4
	shortestPause = 100 * time.Millisecond
)

// notify tells the subscribers when the topic has changed, the first time at once, until the watches end.
func (s *subject) notify(w *watches) {
	for w.await() {
		s.mu.Lock()
		s.generation++
		for subscriber := range s.subscribers {
			select {
			case subscriber <- struct{}{}:
			default: // it has a value already
			}
		}
		pause := max(shortestPause, pausePerRead*s.took)
		s.mu.Unlock()
		if !sleep(w.ctx, pause) {
			return
		}
	}
}
