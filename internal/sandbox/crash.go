package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes"
)

// Kill ends a component as kill -9 does, and returns when it has ended. Its data
// and its port stay as they were.
func (s *Sandbox) Kill(component string) error {
	c, err := s.find(component)
	if err != nil {
		return err
	}
	if component == APIServer {
		for _, gate := range s.gates() {
			gate.shut() // so that the other components wait for it instead of failing
		}
	}
	c.kill()
	return s.publish()
}

// Resume starts a component that Kill ended, with the data and the
// port that it had. If the API server runs, Resume returns when that is ready.
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
	// The second path is a read from etcd: just after a crash, /readyz may be outdated.
	err = s.whileAlive(ctx, func(ctx context.Context) error {
		return awaitOK(ctx, client, "/readyz", "/api/v1/namespaces/default")
	})
	if err != nil {
		c.kill() // so that it can be tried again
		return errors.Join(fmt.Errorf("resume %s: %w", component, err), s.publish())
	}
	for _, gate := range s.gates() {
		gate.open()
	}
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

func (s *Sandbox) find(name string) (*component, error) {
	i := slices.IndexFunc(s.allComponents(), func(c *component) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("this sandbox has no component %q", name)
	}
	return s.allComponents()[i], nil
}
