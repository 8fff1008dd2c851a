package sandbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// giveUpTime tells a component that gave up waiting for the API server from
	// one that can't run at all.
	giveUpTime = 5 * time.Second
	// deathDelay is how long an error waits for the end of a component that explains it:
	// requests fail before a process is reaped.
	deathDelay = 200 * time.Millisecond
)

// whileAlive runs do until it returns, and ends its context when a component
// ends by itself or the sandbox is stopped. The end of a component explains any other error, so it is
// returned instead.
func (s *Sandbox) whileAlive(ctx context.Context, do func(context.Context) error) error {
	alarm := s.addWatcher()
	defer s.removeWatcher(alarm)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- do(ctx) }()

	var reason error
	select {
	case reason = <-alarm:
	case <-s.stopping:
		reason = errStopped
	case err := <-result:
		return explained(err, alarm)
	}
	cancel()
	<-result
	return reason
}

// explained returns the end of a component, if there is one, instead of the error that it caused.
func explained(err error, alarm <-chan error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case death := <-alarm:
		return death
	case <-time.After(deathDelay):
		return err
	}
}

// addWatcher returns a channel that receives the next unexpected end of a component.
func (s *Sandbox) addWatcher() chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	alarm := make(chan error, 1)
	s.watchers = append(s.watchers, alarm)
	return alarm
}

func (s *Sandbox) removeWatcher(alarm chan error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = slices.DeleteFunc(s.watchers, func(a chan error) bool { return a == alarm })
}

// withLog adds the last lines of a component's log to an error.
func (s *Sandbox) withLog(component string, err error) error {
	if c, findErr := s.find(component); findErr == nil && !errors.Is(err, context.Canceled) {
		return c.withLog(err)
	}
	return err
}

// report passes the end of a component on to all watchers. A component that only gave up waiting for the
// API server is started again.
func (s *Sandbox) report(c *component, p *process) {
	if !s.gate.isOpen() && c.name != APIServer && c.name != Etcd && time.Since(p.started) > giveUpTime {
		if s.restart(c) == nil {
			return
		}
	}
	death := c.deathError(p)
	s.mu.Lock()
	if s.failure == nil {
		s.failure = death
	}
	for _, listener := range slices.Concat(s.watchers, []chan error{s.died}) {
		select {
		case listener <- death:
		default: // it has one already
		}
	}
	s.mu.Unlock()
	_ = s.publish() // for others to see; who listens knows already
}

// Died returns a channel that reports each component which ended by itself.
func (s *Sandbox) Died() <-chan error { return s.died }
