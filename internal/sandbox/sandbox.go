// Package sandbox runs a real Kubernetes control plane on this machine, for development, tests and the demo: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler as child processes, and kwok, which simulates nodes and
// the pods on them. It needs no container engine and no rights beyond the user's own.
//
// Stop deletes everything: certificates, data and logs are in one folder below the user's cache, ports are free ones on
// the loopback, and on Linux the kernel kills the processes when the process that started them ends; docs/sandbox.md
// describes other systems.
//
// A sandbox is not a cluster for workloads: without real nodes, no container runs, there is no kube-proxy, and Services
// only connect the API server to pods that run as processes. The control plane never leaves the loopback.
//
// Start with Start. Package sandbox/binaries finds or builds the programs, sandbox/childprocess runs them,
// sandbox/realnode adds nodes that run containers, and sandbox/sandboxtest shares one sandbox among the tests of a
// package.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/sandbox/childprocess"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
	"github.com/runlevel/runlevel/internal/sandbox/relay"
)

const (
	// startAttempts limits the attempts of Start. An attempt fails if another program takes one of its ports before a
	// component listens there.
	startAttempts = 3
	// startTimeout limits the time until a control plane is ready, which usually takes a few seconds.
	startTimeout = 3 * time.Minute
)

// A Sandbox is a running control plane.
type Sandbox struct {
	// Name is the name from the options, or an unused one.
	Name string
	// Config is the admin's; UserConfig is the one of an ordinary cluster-admin.
	Config, UserConfig *rest.Config
	// Kubeconfig is a file with a context for each of the two.
	Kubeconfig string
	// Registry is the address of the registry of real nodes, which serves images of pods by http. It is empty without
	// real nodes.
	Registry string
	// Logs is the folder with a log for each component, named after it. Stop removes it.
	Logs string
	// Took has the durations of the start.
	Took Timing

	home       *stateFolder
	gate       *relay.Gate
	callbacks  *callbackServer
	nodes      *realnode.Cluster // nil without real nodes
	components *childprocess.Group
	started    time.Time
	stop       func() error

	// mu guards Took and the published status, so that the status is not published after Stop.
	mu        sync.Mutex
	isStopped bool
}

// Timing contains the durations of a start, measured from the start of the first process.
type Timing struct {
	APIServer time.Duration // time until the API server's /readyz returned ok
	Ready     time.Duration // time until everything was ready
}

// Start starts a control plane and returns when it is ready: the API server reports ready, the default namespace has
// its service account, the nodes are ready, and the CRDs of the options are established. The end of ctx stops the start
// only: the sandbox runs until Stop or until this process ends.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	inputs, err := prepareStart(ctx, o)
	if err != nil {
		return nil, err
	}
	h, err := claim(o.Name)
	if err != nil {
		return nil, err
	}
	o.Kubernetes = inputs.emulatedVersion
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		s, err := launch(ctx, o, inputs, h)
		if err == nil {
			return s, nil
		}
		if attempt < startAttempts && errors.Is(err, childprocess.ErrPortTaken) {
			continue
		}
		err = fmt.Errorf("start sandbox %s: %w", h.name(), err)
		if errors.Is(err, context.Canceled) {
			return nil, errors.Join(err, h.remove())
		}
		return nil, errors.Join(err, h.removeExceptLogs(err))
	}
}

func withStartTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
}

// launch makes one attempt to start. If it fails, no process keeps running.
func launch(ctx context.Context, o Options, inputs startInputs, h *stateFolder) (_ *Sandbox, err error) {
	p, err := reservePorts()
	if err != nil {
		return nil, err
	}
	s := &Sandbox{
		Name: h.name(), Kubeconfig: h.path("kubeconfig"), Logs: h.logs(),
		home: h, gate: relay.NewGate(fmt.Sprintf("127.0.0.1:%d", p.apiServer)),
	}
	s.stop = sync.OnceValue(s.stopOnce)
	s.components = childprocess.NewGroup(h.dir, s.Logs)
	s.components.Changed = func() { _ = s.publish() }
	s.components.Restarts = func(name string) bool {
		// On a slow machine, even a ready API server may not answer in time.
		isWaiting := !s.gate.IsOpen() || !s.isReady()
		return isWaiting && name != APIServer && name != Etcd
	}
	defer func() {
		if err != nil {
			s.killAll()
		}
	}()
	if err := h.clear(); err != nil {
		return nil, err
	}
	if s.callbacks, err = newCallbackServer(); err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	p.callbacks = s.callbacks.port()
	if err := s.configure(ctx, o, inputs, p); err != nil {
		return nil, err
	}
	return s, s.components.WhileAlive(ctx, func(ctx context.Context) error {
		if err := s.startControlPlane(ctx, o.components()); err != nil {
			return err
		}
		return s.becomeReady(ctx, o, inputs.crds)
	})
}

// configure writes all files, and creates the components.
func (s *Sandbox) configure(ctx context.Context, o Options, inputs startInputs, p ports) (err error) {
	if o.RealNodes > 0 {
		nodes := realnode.Options{
			Folder: s.home.nodes(), Count: o.RealNodes, Images: o.Images, Offline: o.Offline, Programs: inputs.node,
		}
		if s.nodes, err = realnode.Connect(ctx, nodes, s.home.withLock, s.gate); err != nil {
			return err
		}
	}
	s.Registry = s.nodes.Registry()
	access, err := s.writeFiles(o, p)
	if err != nil {
		return err
	}
	s.Config = access.server.RESTConfig(access.admin)
	s.UserConfig = access.server.RESTConfig(access.user)
	if err := s.callbacks.serve(s.home, s.Config, s.nodes.Network()); err != nil {
		return err
	}
	args := arguments(o, s.home, p)
	for _, name := range o.components() {
		s.components.Add(childprocess.Command{Name: name, Program: inputs.programs[name], Args: args[name]})
	}
	s.nodes.AddComponents(s.components)
	return nil
}

// startControlPlane starts the components of the control plane without waits: components wait for each other by
// themselves.
func (s *Sandbox) startControlPlane(ctx context.Context, names []string) error {
	s.started = time.Now()
	for _, name := range names {
		c, err := s.components.Find(name)
		if err == nil {
			err = s.components.Start(c)
		}
		if err != nil {
			return err
		}
		klog.FromContext(ctx).V(1).Info("started", "component", name, "pid", c.PID(), "program", c.Program,
			"args", c.Args)
	}
	return s.publish()
}

// becomeReady waits until everything is ready.
func (s *Sandbox) becomeReady(ctx context.Context, o Options, crds []*unstructured.Unstructured) error {
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	if err := awaitOK(ctx, client, "/readyz"); err != nil {
		return s.withLog(APIServer, err)
	}
	apiServer := time.Since(s.started)
	s.gate.Open()
	if err := s.prepareCluster(ctx, o, crds, client); err != nil {
		return err
	}
	if o.nodes() > 0 { // without nodes, no pod can use a volume
		volumes := &provisioner{client, filepath.Join(s.home.nodes(), "volumes")}
		go volumes.run(ctx, s.components.Stopped())
	}
	s.mu.Lock()
	s.Took = Timing{APIServer: apiServer, Ready: time.Since(s.started)}
	s.mu.Unlock()
	klog.FromContext(ctx).V(1).Info("ready", "sandbox", s.Name, "apiServer", s.Took.APIServer,
		"everything", s.Took.Ready)
	return s.publish()
}

// isReady reports whether everything has been ready.
func (s *Sandbox) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Took.Ready > 0
}

// withLog adds the last lines of a component's log to an error.
func (s *Sandbox) withLog(name string, err error) error {
	if c, findErr := s.components.Find(name); findErr == nil {
		return c.WithLog(err)
	}
	return err
}

// Kill ends a component as kill -9 does, and returns after it has exited. Its data and its port stay as they were.
func (s *Sandbox) Kill(name string) error {
	c, err := s.components.Find(name)
	if err != nil {
		return err
	}
	if name == APIServer {
		s.gate.Shut() // so that the other components wait for it instead of failing
	}
	c.Kill()
	return s.publish()
}

// Resume starts a component that Kill ended, with its data and its port. If the API server runs, Resume returns when
// the API server is ready.
func (s *Sandbox) Resume(ctx context.Context, name string) error {
	c, err := s.components.Find(name)
	if err != nil {
		return err
	}
	if err := s.components.Start(c); err != nil {
		return err
	}
	if err := s.publish(); err != nil {
		return err
	}
	if server, err := s.components.Find(APIServer); err != nil || server.PID() == 0 {
		return err
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	ctx, cancel := withStartTimeout(ctx)
	defer cancel()
	// The second path is a read from etcd: just after a crash, /readyz may be outdated.
	err = s.components.WhileAlive(ctx, func(ctx context.Context) error {
		return awaitOK(ctx, client, "/readyz", "/api/v1/namespaces/default")
	})
	if err != nil {
		c.Kill() // so that the caller can try again
		return errors.Join(fmt.Errorf("resume %s: %w", name, err), s.publish())
	}
	s.gate.Open()
	return s.publish()
}

// publish writes the status for other processes.
func (s *Sandbox) publish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isStopped {
		return nil
	}
	state := Status{
		Name: s.Name, PID: os.Getpid(), Started: s.started, Ready: s.Took.Ready > 0,
		Server: s.Config.Host, Kubeconfig: s.Kubeconfig, Registry: s.Registry, Logs: s.Logs,
	}
	for _, c := range s.components.All() {
		pid := c.PID()
		state.Ready = state.Ready && pid != 0
		state.Components = append(state.Components, ComponentStatus{Name: c.Name, PID: pid, Log: c.Log})
	}
	return s.home.publish(state)
}

// Died returns a channel that receives an error for each component that exits by itself.
func (s *Sandbox) Died() <-chan error { return s.components.Died() }

// Stop ends all processes and removes everything. After a failure, the logs stay for an hour, and until another Start.
// Stop may be called several times, also concurrently.
func (s *Sandbox) Stop() error { return s.stop() }

func (s *Sandbox) stopOnce() error {
	s.killAll()
	if failure := s.components.Failure(); failure != nil {
		return s.home.removeExceptLogs(failure)
	}
	return s.home.remove()
}

// killAll kills all processes: no process needs to save data.
func (s *Sandbox) killAll() {
	s.mu.Lock()
	s.isStopped = true
	s.mu.Unlock()
	s.gate.Close()
	s.nodes.Close()
	s.callbacks.close()
	s.components.Stop()
}
