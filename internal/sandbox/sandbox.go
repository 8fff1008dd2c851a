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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
	"github.com/runlevel/runlevel/internal/sandbox/realnode"
)

const (
	// startTries bounds how often Start starts over because another program took one
	// of its ports between choosing and listening.
	startTries = 3
	// startTimeout is how long a control plane may take to become ready. It needs
	// a few seconds; a machine so busy that it needs this long is of no use.
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
	// Registry is the address of the registry of real nodes, for images of pods; empty without real nodes. It speaks
	// http.
	Registry string
	// Logs is the folder with a log for each component, named after it. It is
	// gone after Stop.
	Logs string
	// Took is how long the start took.
	Took Timing

	home       *stateFolder
	gate       *gate      // for the components on the loopback
	nodes      *realNodes // nil without real nodes
	kubelet    *loopbackServer
	egress     *loopbackServer
	components []*component
	died       chan error
	started    time.Time
	stop       func() error

	// mu guards the following fields and the published status, and ensures that no component
	// starts after the end.
	mu       sync.Mutex
	stopping chan struct{} // closed when the sandbox is stopped
	failure  error         // the first unexpected end of a component
	watchers []chan error  // receive unexpected ends of components, as died does
}

// Timing is how long a start took, from starting the first process.
type Timing struct {
	APIServer time.Duration // until the API server's /readyz returned ok
	Ready     time.Duration // until everything was ready
}

// Components lists the names of all components, in the order in which they
// depend on each other.
func Components() []string { return binaries.Names() }

// Start starts a control plane and returns when it is ready: the API server reports
// ready, the default namespace has its service account, the nodes are ready, and
// the CRDs of the options are established. ctx bounds the start and nothing after it;
// the sandbox runs until Stop or until this process ends.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	found, err := prepareStart(ctx, o)
	if err != nil {
		return nil, err
	}
	h, err := claim(o.Name)
	if err != nil {
		return nil, err
	}
	o.Kubernetes = found.emulated
	ctx, cancel := boundedStart(ctx)
	defer cancel()
	for try := 1; ; try++ {
		s, err := launch(ctx, o, found, h)
		if err == nil {
			return s, nil
		}
		if try < startTries && errors.Is(err, errPortTaken) {
			continue
		}
		err = fmt.Errorf("start sandbox %s: %w", h.name(), err)
		if errors.Is(err, context.Canceled) {
			return nil, errors.Join(err, h.remove())
		}
		return nil, errors.Join(err, h.removeButLogs(err))
	}
}

// Prepare builds the programs ahead of time, and checks the options.
func Prepare(ctx context.Context, o Options) error {
	_, err := prepareStart(ctx, o)
	return err
}

// A preparation is what a start needs, and every try of it.
type preparation struct {
	crds     []*unstructured.Unstructured
	programs map[string]string // of the control plane
	node     realnode.Programs
	emulated string // version of Kubernetes; "" if it is that of the programs
}

func prepareStart(ctx context.Context, o Options) (found preparation, err error) {
	if err := o.validate(); err != nil {
		return found, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if found.crds, err = readCRDs(o.CRDs); err != nil {
		return found, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if found.node, err = findNodePrograms(ctx, o); err != nil {
		return found, err
	}
	if found.programs, err = binaries.Locate(ctx, o.components(), o.Progress); err != nil {
		return found, err
	}
	found.emulated, err = emulation(ctx, found.programs[APIServer], o.Kubernetes)
	return found, err
}

func boundedStart(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %s", startTimeout))
}

// launch makes one try to start. If it fails, no process is left running.
func launch(ctx context.Context, o Options, found preparation, h *stateFolder) (_ *Sandbox, err error) {
	free, err := reservePorts()
	if err != nil {
		return nil, err
	}
	s := &Sandbox{
		Name: h.name(), Kubeconfig: h.path("kubeconfig"), Logs: h.logs(),
		home: h, died: make(chan error, len(found.programs)), stopping: make(chan struct{}),
	}
	s.stop = sync.OnceValue(s.end)
	if err := s.listen(&free); err != nil {
		return nil, fmt.Errorf("listen on 127.0.0.1: %w", err)
	}
	defer func() {
		if err != nil {
			s.killAll()
		}
	}()
	if err := h.clear(); err != nil {
		return nil, err
	}
	if s.nodes, err = connectNodes(ctx, o, h, free, found.node); err != nil {
		return nil, err
	}
	s.Registry = s.nodes.registryAddress()
	creds, err := prepare(o, h, free, s)
	if err != nil {
		return nil, err
	}
	s.Config = restConfig(loopbackURL(free.apiServer), creds.ca, creds.admin)
	s.UserConfig = restConfig(loopbackURL(free.apiServer), creds.ca, creds.user)
	if err := s.serve(creds.ca); err != nil {
		return nil, err
	}
	s.components = s.newComponents(commands(o, h, free), found.programs)
	s.nodes.add(s.newComponent)
	return s, s.whileAlive(ctx, func(ctx context.Context) error {
		if err := s.startAll(ctx); err != nil {
			return err
		}
		return s.becomeReady(ctx, o, found.crds)
	})
}

// listen opens the ports of this process.
func (s *Sandbox) listen(p *ports) (err error) {
	if s.gate, err = newGate("127.0.0.1", fmt.Sprintf("127.0.0.1:%d", p.apiServer)); err != nil {
		return err
	}
	if s.kubelet, err = newLoopbackServer(); err != nil {
		s.gate.close()
		return err
	}
	if s.egress, err = newLoopbackServer(); err != nil {
		s.gate.close()
		s.kubelet.close()
		return err
	}
	p.kubelet, p.egress = s.kubelet.port(), s.egress.port()
	return nil
}

// serve answers the API server on the ports of kubelet and egress.
func (s *Sandbox) serve(ca []byte) error {
	config := rest.CopyConfig(s.Config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	logs, err := newKubelet(config)
	if err != nil {
		return err
	}
	return errors.Join(s.kubelet.serve(s.home, ca, logs),
		s.egress.serve(s.home, ca, &egress{client, s.nodes.network()}))
}

func (s *Sandbox) newComponents(lines map[string][]string, programs map[string]string) []*component {
	var components []*component
	for _, name := range Components() {
		if args, ok := lines[name]; ok {
			components = append(components, s.newComponent(name, programs[name], args))
		}
	}
	return components
}

func (s *Sandbox) newComponent(name, program string, args []string) *component {
	return &component{
		name:    name,
		program: program,
		args:    args,
		home:    s.home.dir,
		log:     filepath.Join(s.Logs, name+".log"),
		died:    s.report,
	}
}

// startAll starts every component, one right after the other: they wait for each
// other by themselves.
func (s *Sandbox) startAll(ctx context.Context) error {
	s.started = time.Now()
	for _, c := range s.components {
		if err := s.restart(c); err != nil {
			return err
		}
		klog.FromContext(ctx).V(1).Info("started", "component", c.name, "pid", c.pid(), "program", c.program, "args",
			c.args)
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
	for _, gate := range s.gates() {
		gate.open()
	}
	if err := s.prepareCluster(ctx, o, crds, client); err != nil {
		return err
	}
	if o.nodes() > 0 { // else no pod can use a volume
		go (&provisioner{client, filepath.Join(s.home.nodes(), "volumes")}).run(ctx, s.stopping)
	}
	s.mu.Lock()
	s.Took = Timing{APIServer: apiServer, Ready: time.Since(s.started)}
	s.mu.Unlock()
	klog.FromContext(ctx).V(1).Info("ready", "sandbox", s.Name, "apiServer", s.Took.APIServer, "everything",
		s.Took.Ready)
	return s.publish()
}

// publish writes the status for other processes.
func (s *Sandbox) publish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.stopping) {
		return nil
	}
	state := Status{
		Name: s.Name, PID: os.Getpid(), Started: s.started, Ready: s.Took.Ready > 0,
		Server: s.Config.Host, Kubeconfig: s.Kubeconfig, Registry: s.Registry, Logs: s.Logs,
	}
	for _, c := range s.allComponents() {
		pid := c.pid()
		state.Ready = state.Ready && pid != 0
		state.Components = append(state.Components, ComponentStatus{Name: c.name, PID: pid, Log: c.log})
	}
	return s.home.publish(state)
}

// Stop ends all processes and removes everything; after a failure, the logs
// stay for an hour, and then until another Start. It may be called several times, also concurrently.
func (s *Sandbox) Stop() error { return s.stop() }

func (s *Sandbox) end() error {
	s.killAll()
	s.mu.Lock()
	failure := s.failure
	s.mu.Unlock()
	if failure != nil {
		return s.home.removeButLogs(failure)
	}
	return s.home.remove()
}

// killAll ends all processes at once: no data is kept.
func (s *Sandbox) killAll() {
	s.mu.Lock()
	close(s.stopping)
	s.mu.Unlock()
	s.gate.close()
	s.nodes.close()
	s.kubelet.close()
	s.egress.close()
	for _, c := range slices.Backward(s.allComponents()) {
		c.kill()
	}
}
