package sandbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// giveUpTime is how long a component runs at least that gives up waiting for the API
	// server. One that ends earlier can't run at all.
	giveUpTime = 5 * time.Second
	// exitDelay is how long an error waits for the end of a component that explains it:
	// requests fail before a process is reaped.
	exitDelay = 200 * time.Millisecond
)

// whileAlive runs do until it returns, and ends its context when a component
// ends by itself or the sandbox is stopped. The end of a component explains any other error, so it is
// returned instead.
func (s *Sandbox) whileAlive(ctx context.Context, do func(context.Context) error) error {
	exits := s.addWatcher()
	defer s.removeWatcher(exits)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- do(ctx) }()

	var reason error
	select {
	case reason = <-exits:
	case <-s.stopping:
		reason = errStopped
	case err := <-result:
		return explained(err, exits)
	}
	cancel()
	<-result
	return reason
}

// explained returns the end of a component instead of an error that it caused.
func explained(err error, exits <-chan error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case exit := <-exits:
		return exit
	case <-time.After(exitDelay):
		return err
	}
}

// addWatcher returns a channel that receives the next unexpected end of a component.
func (s *Sandbox) addWatcher() chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	exits := make(chan error, 1)
	s.watchers = append(s.watchers, exits)
	return exits
}

func (s *Sandbox) removeWatcher(exits chan error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = slices.DeleteFunc(s.watchers, func(a chan error) bool { return a == exits })
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
	exit := c.exitError(p)
	s.mu.Lock()
	if s.failure == nil {
		s.failure = exit
	}
	for _, listener := range slices.Concat(s.watchers, []chan error{s.died}) {
		select {
		case listener <- exit:
		default: // it has one already
		}
	}
	s.mu.Unlock()
	_ = s.publish() // for other processes
}

// Died returns a channel that reports each component which ended by itself.
func (s *Sandbox) Died() <-chan error { return s.died }
