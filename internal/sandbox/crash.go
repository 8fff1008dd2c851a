package sandbox

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
)

// Kill ends a component as kill -9 does, and returns when it is gone. Its data
// and its port stay as they were.
func (s *Sandbox) Kill(component string) error {
	c, err := s.find(component)
	if err != nil {
		return err
	}
	s.shutGate(component)
	c.kill()
	return s.publish(true)
}

// Terminate asks a component to end and waits until it has. The API server
// takes its time, to let requests that run come to their end.
func (s *Sandbox) Terminate(ctx context.Context, component string) error {
	c, err := s.find(component)
	if err != nil {
		return err
	}
	s.shutGate(component)
	if err := c.terminate(ctx); err != nil {
		return err
	}
	return s.publish(true)
}

// Resume starts a component that Kill or Terminate ended, with the data and the
// port that it had, and returns when the API server is ready.
func (s *Sandbox) Resume(ctx context.Context, component string) error {
	c, err := s.find(component)
	if err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	if err := awaitAPIServer(ctx, client); err != nil {
		return err
	}
	s.gate.open()
	return s.publish(true)
}

// shutGate makes the components wait for the API server instead of failing, so
// that they are back the moment it is.
func (s *Sandbox) shutGate(component string) {
	if component == APIServer {
		s.gate.shut()
	}
}

func (s *Sandbox) find(name string) (*component, error) {
	for _, c := range s.components {
		if c.name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("this sandbox has no component %q", name)
}

// publish tells other processes how things stand.
func (s *Sandbox) publish(ready bool) error {
	state := State{
		Name: s.Name, PID: os.Getpid(), Started: s.started, Ready: ready,
		Server: s.Config.Host, Kubeconfig: s.Kubeconfig, Logs: s.Logs,
	}
	for _, c := range s.components {
		state.Components = append(state.Components, ComponentState{Name: c.name, PID: c.pid(), Log: c.log})
	}
	return s.home.publish(state)
}
