package sandbox

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// aGoodWhile tells a component that gave up waiting for the API server from
	// one that can't run at all.
	aGoodWhile = 5 * time.Second
	// momentOfTruth is how long an error waits for the death that explains it:
	// requests fail before a process is reaped.
	momentOfTruth = 200 * time.Millisecond
)

// whileAlive runs do until it returns, and ends its context when a component
// dies or the sandbox is stopped. A death explains any error; it is what is
// returned then.
func (s *Sandbox) whileAlive(ctx context.Context, do func(context.Context) error) error {
	alarm := s.setAlarm()
	defer s.removeAlarm(alarm)
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

// explained prefers the death of a component to what came of it.
func explained(err error, alarm <-chan error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	select {
	case death := <-alarm:
		return death
	case <-time.After(momentOfTruth):
		return err
	}
}

// setAlarm returns a channel that gets the next death.
func (s *Sandbox) setAlarm() chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	alarm := make(chan error, 1)
	s.alarms = append(s.alarms, alarm)
	return alarm
}

func (s *Sandbox) removeAlarm(alarm chan error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms = slices.DeleteFunc(s.alarms, func(a chan error) bool { return a == alarm })
}

// blame adds what the component says that kept us waiting.
func (s *Sandbox) blame(component string, err error) error {
	if c, findErr := s.find(component); findErr == nil && !errors.Is(err, context.Canceled) {
		return c.blame(err)
	}
	return err
}

// report passes a death on to whoever listens. What only gave up waiting for the
// API server is started again.
func (s *Sandbox) report(c *component, p *process) {
	if !s.gate.isOpen() && c.name != APIServer && c.name != Etcd && time.Since(p.started) > aGoodWhile {
		if s.restart(c) == nil {
			return
		}
	}
	death := c.deathError(p)
	s.mu.Lock()
	if s.accident == nil {
		s.accident = death
	}
	for _, listener := range slices.Concat(s.alarms, []chan error{s.died}) {
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
