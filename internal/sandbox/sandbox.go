package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

// startTries bounds how often Start begins anew because a stranger took one of
// its ports in the moment between choosing and listening.
const startTries = 3

// startTimeout is how long a control plane may take to become ready. It needs a
// few seconds; a machine so busy that it needs this long is of no use.
const startTimeout = 3 * time.Minute

// A Sandbox is a running control plane.
type Sandbox struct {
	// Name is the one it was given, or chose.
	Name string
	// Config is the admin's; UserConfig that of an ordinary cluster-admin.
	Config, UserConfig *rest.Config
	// Kubeconfig is a file with a context for each of the two.
	Kubeconfig string
	// Logs is the folder with a log for each component, named after it. It is
	// gone after Stop.
	Logs string
	// PodLog is the file that every container's log is read from. Its lines look
	// like "2006-01-02T15:04:05.999999999Z07:00 stdout F text".
	PodLog string
	// Took says how long the start took.
	Took Timing

	home       *home
	forker     *forker
	gate       *gate
	components []*component
	died       chan error
	started    time.Time
	stop       func() error
}

// Timing is how long a start took, from starting the first process.
type Timing struct {
	APIServer time.Duration // until the API server's /readyz said ok
	Ready     time.Duration // until everything was ready
}

// Start starts a control plane and returns when it is ready: the API server says
// so, the default namespace has its service account, the nodes are ready, and
// the CRDs asked for are established. ctx bounds the start and nothing after it;
// the sandbox runs until Stop or until this process ends.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	crds, err := readCRDs(o.CRDs)
	if err != nil {
		return nil, err
	}
	programs, err := binaries.Locate(ctx, wanted(o), o.Progress)
	if err != nil {
		return nil, err
	}
	h, err := claim(o.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("not ready after %s", startTimeout))
	defer cancel()
	for try := 1; ; try++ {
		s, err := launch(ctx, o, crds, h, programs)
		if err == nil {
			return s, nil
		}
		if try == startTries || !errors.Is(err, errPortTaken) {
			// The logs that the error points to stay until the next Start.
			return nil, errors.Join(err, h.lock.Unlock())
		}
	}
}

// wanted lists the programs that the options need.
func wanted(o Options) []string {
	return slices.DeleteFunc(Components(), func(name string) bool {
		return o.nodes() == 0 && (name == Scheduler || name == Kwok)
	})
}

// launch is one try to start. When it fails, nothing of it runs any more.
func launch(ctx context.Context, o Options, crds []*unstructured.Unstructured, h *home,
	programs map[string]string,
) (_ *Sandbox, err error) {
	free, err := reservePorts(3)
	if err != nil {
		return nil, err
	}
	p := ports{etcd: free[0], apiServer: free[1], kubelet: free[2]}
	gate, err := newGate(fmt.Sprintf("127.0.0.1:%d", p.apiServer))
	if err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	s := &Sandbox{
		Name: h.name(), Kubeconfig: h.path("kubeconfig"), Logs: h.logs(), PodLog: h.podLog(),
		home: h, gate: gate, forker: newForker(), died: make(chan error, len(programs)), started: time.Now(),
	}
	s.stop = sync.OnceValue(s.end)
	defer func() {
		if err != nil {
			s.killAll()
		}
	}()
	creds, err := prepare(o, h, p, "https://"+gate.address())
	if err != nil {
		return nil, err
	}
	s.Config = restConfig(loopbackURL(p.apiServer), creds.ca, creds.admin)
	s.UserConfig = restConfig(loopbackURL(p.apiServer), creds.ca, creds.user)
	if err := s.startAll(commands(o, h, p), programs); err != nil {
		return nil, err
	}
	return s, s.becomeReady(ctx, o, crds)
}

// startAll starts every component, one right after the other: they wait for each
// other by themselves.
func (s *Sandbox) startAll(lines map[string][]string, programs map[string]string) error {
	for _, name := range Components() {
		args, ok := lines[name]
		if !ok {
			continue
		}
		c := &component{
			name: name, program: programs[name], args: args, forker: s.forker,
			log:  filepath.Join(s.Logs, name+".log"),
			died: s.report,
		}
		if err := os.Truncate(c.log, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err // the log of a try before this one
		}
		s.components = append(s.components, c)
		if err := c.start(); err != nil {
			return err
		}
	}
	return s.publish()
}

// becomeReady waits until everything is, or until a component has died.
func (s *Sandbox) becomeReady(ctx context.Context, o Options, crds []*unstructured.Unstructured) error {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	settled := make(chan struct{})
	group.Go(func() error {
		select {
		case err := <-s.died:
			return err
		case <-settled:
			return nil
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		defer close(settled)
		if err := awaitOK(ctx, client, "/readyz"); err != nil {
			return err
		}
		s.Took.APIServer = time.Since(s.started)
		s.gate.open()
		return settle(ctx, o, crds, s.Config, client)
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("start sandbox %s: %w", s.Name, s.cause(err))
	}
	s.Took.Ready = time.Since(s.started)
	return s.publish()
}

// cause prefers the death of a component to what came of it.
func (s *Sandbox) cause(err error) error {
	select {
	case death := <-s.died:
		return death
	default:
		return err
	}
}

// report passes a death on, to whoever listens. That the first ones are not lost
// is enough.
func (s *Sandbox) report(c *component) {
	select {
	case s.died <- c.deathError():
	default:
	}
}

// Died returns a channel that reports each component which ended by itself.
func (s *Sandbox) Died() <-chan error { return s.died }

// Stop ends all processes and removes everything. It may be called any number of
// times, from anywhere.
func (s *Sandbox) Stop() error { return s.stop() }

func (s *Sandbox) end() error {
	s.killAll()
	return s.home.remove()
}

// killAll is quick rather than kind: there is nothing to save.
func (s *Sandbox) killAll() {
	s.gate.close()
	for _, c := range slices.Backward(s.components) {
		c.kill()
	}
	s.forker.close()
}
