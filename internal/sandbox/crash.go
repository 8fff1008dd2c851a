package sandbox

import (
	"context"
	"fmt"
	"os"
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
	if err := c.start(); err != nil {
		return err
	}
	if server, err := s.find(APIServer); err != nil || server.pid() == 0 {
		return s.publish()
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := c.whileRunning(ctx)
	defer cancel()
	// The second is a read from etcd: just after a crash, /readyz may not know.
	if err := awaitOK(ctx, client, "/readyz", "/api/v1/namespaces/default"); err != nil {
		return err
	}
	s.gate.open()
	return s.publish()
}

// leaving finds a component that is about to end. Before the API server does, the
// gate is shut: the others wait for it instead of failing, and are back the
// moment it is.
func (s *Sandbox) leaving(name string) (*component, error) {
	if name == APIServer {
		s.gate.shut()
	}
	return s.find(name)
}

func (s *Sandbox) find(name string) (*component, error) {
	i := slices.IndexFunc(s.components, func(c *component) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("this sandbox has no component %q", name)
	}
	return s.components[i], nil
}

// publish tells other processes how things stand.
func (s *Sandbox) publish() error {
	state := State{
		Name: s.Name, PID: os.Getpid(), Started: s.started, Ready: s.Took.Ready > 0,
		Server: s.Config.Host, Kubeconfig: s.Kubeconfig, Logs: s.Logs,
	}
	for _, c := range s.components {
		pid := c.pid()
		state.Ready = state.Ready && pid != 0
		state.Components = append(state.Components, ComponentState{Name: c.name, PID: pid, Log: c.log})
	}
	return s.home.publish(state)
}
