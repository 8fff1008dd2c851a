package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes"
)

// Kill ends a component as kill -9 does, and returns when it is gone. Its data
// and its port stay as they were.
func (s *Sandbox) Kill(component string) error {
	c, err := s.leaving(component)
	if err != nil {
		return err
	}
	c.kill()
	return s.publish()
}

// Terminate asks a component to end and waits until it has. The API server
// takes its time, to let requests that run come to their end.
func (s *Sandbox) Terminate(ctx context.Context, component string) error {
	c, err := s.leaving(component)
	if err != nil {
		return err
	}
	if err := c.terminate(ctx); err != nil {
		s.gate.open() // the API server, if it was that one, still serves
		return err
	}
	return s.publish()
}

// Resume starts a component that Kill or Terminate ended, with the data and the
// port that it had. If the API server runs, it returns when that is ready.
func (s *Sandbox) Resume(ctx context.Context, component string) error {
	c, err := s.find(component)
	if err != nil {
		return err
	}
	if err := s.restart(c); err != nil {
		return err
	}
	if err := s.publish(); err != nil {
		return err
	}
	if server, err := s.find(APIServer); err != nil || server.pid() == 0 {
		return err
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := boundedStart(ctx)
	defer cancel()
	// The second is a read from etcd: just after a crash, /readyz may not know.
	err = s.whileAlive(ctx, func(ctx context.Context) error {
		return awaitOK(ctx, client, "/readyz", "/api/v1/namespaces/default")
	})
	if err != nil {
		c.kill() // so that it can be tried again
		return errors.Join(fmt.Errorf("resume %s: %w", component, err), s.publish())
	}
	s.gate.open()
	return s.publish()
}

// restart starts a component again, unless the sandbox has been stopped.
func (s *Sandbox) restart(c *component) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.stopping) {
		return fmt.Errorf("start %s: %w", c.name, errStopped)
	}
	return c.start()
}

// leaving finds a component that is about to end. Before the API server does, the
// gate is shut: the others wait for it instead of failing, and are back the
// moment it is.
func (s *Sandbox) leaving(name string) (*component, error) {
	c, err := s.find(name)
	if err == nil && name == APIServer {
		s.gate.shut()
	}
	return c, err
}

func (s *Sandbox) find(name string) (*component, error) {
	i := slices.IndexFunc(s.components, func(c *component) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("this sandbox has no component %q", name)
	}
	return s.components[i], nil
}
