package childprocess

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// minWaitTime is the minimum running time of a component that exits because it has waited in vain for the API
	// server. A component that exits earlier can't run at all.
	minWaitTime = 5 * time.Second
	// exitDelay is the time for which WhileAlive waits, after an error, for the exit of a component that explains the
	// error: requests fail before this process notices the exit.
	exitDelay = 200 * time.Millisecond
	// reportedFailures is the capacity of the channel of Died.
	reportedFailures = 8
)

// ErrStopped is the error of all operations after Stop.
var ErrStopped = errors.New("the sandbox has been stopped")

// A Group contains the components of a sandbox. Its methods may be called concurrently, except for Add.
type Group struct {
	Home string // folder for settings of components
	Logs string // folder of the logs
	// Restarts reports whether a component that has exited after minWaitTime is restarted. Any other exit is a failure.
	Restarts func(name string) bool
	// Changed is called after a failure.
	Changed func()

	components []*Component
	died       chan error
	stopped    chan struct{}

	mu      sync.Mutex
	failure error                             // the first one
	waiting map[*context.CancelCauseFunc]bool // end the contexts of WhileAlive
}

// NewGroup returns a group without components.
func NewGroup(home, logs string) *Group {
	return &Group{
		Home: home, Logs: logs, stopped: make(chan struct{}), died: make(chan error, reportedFailures),
		waiting: map[*context.CancelCauseFunc]bool{},
	}
}

// Add adds a component, which does not run yet.
func (g *Group) Add(command Command) *Component {
	c := &Component{Command: command, Log: filepath.Join(g.Logs, command.Name+".log"), group: g}
	g.components = append(g.components, c)
	return c
}

// All returns all components.
func (g *Group) All() []*Component { return g.components }

// Find returns the component of that name.
func (g *Group) Find(name string) (*Component, error) {
	i := slices.IndexFunc(g.components, func(c *Component) bool { return c.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("this sandbox has no component %q", name)
	}
	return g.components[i], nil
}

// Start starts components in their order, unless the group is stopped.
func (g *Group) Start(components ...*Component) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range components {
		if g.IsStopped() {
			return fmt.Errorf("start %s: %w", c.Name, ErrStopped)
		}
		if err := c.start(); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills all components. It must be called once.
func (g *Group) Stop() {
	g.mu.Lock()
	close(g.stopped)
	for cancel := range g.waiting {
		(*cancel)(ErrStopped)
	}
	g.mu.Unlock()
	for _, c := range slices.Backward(g.components) {
		c.Kill()
	}
}

// Stopped returns a channel that Stop closes.
func (g *Group) Stopped() <-chan struct{} { return g.stopped }

// IsStopped reports whether Stop was called.
func (g *Group) IsStopped() bool {
	select {
	case <-g.stopped:
		return true
	default:
		return false
	}
}

// Died returns a channel that receives each failure, up to reportedFailures that are not received yet.
func (g *Group) Died() <-chan error { return g.died }

// Failure returns the first failure: the error of a component that exited by itself.
func (g *Group) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// WhileAlive calls a function whose context ends when a component fails, or the group is stopped. If the function
// returns an error after a failure, WhileAlive returns the failure, which is the cause of the error.
func (g *Group) WhileAlive(parent context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer g.notify(cancel)()
	err := do(ctx)
	if err == nil || parent.Err() != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(exitDelay):
		return err
	}
}

// notify makes failures and Stop cancel a context, until undo is called.
func (g *Group) notify(cancel context.CancelCauseFunc) (undo func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting[&cancel] = true
	if g.IsStopped() {
		cancel(ErrStopped)
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, &cancel)
	}
}

// handleExit restarts a component that has waited in vain for the API server. Every other exit is a failure, which
// handleExit reports.
func (g *Group) handleExit(c *Component, p *process) {
	if time.Since(p.startedAt) > minWaitTime && g.Restarts(c.Name) && g.Start(c) == nil {
		return
	}
	failure := c.exitError(p)
	g.mu.Lock()
	if g.failure == nil {
		g.failure = failure
	}
	for cancel := range g.waiting {
		(*cancel)(failure)
	}
	select {
	case g.died <- failure:
	default: // the channel is full
	}
	g.mu.Unlock()
	g.Changed()
}
