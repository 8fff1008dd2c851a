// Package manager runs the machine controllers in one process: with leader election, probes, metrics, and a
// ClusterOperator that says how they stand. It decides nothing about machines: the controllers do.
//
// Run is the call to start from. Which controllers there are is in controllers.go; what monitoring is told in metrics.go;
// conditions.go and report.go say how they stand, for the ClusterOperator.
package manager

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/runlevel/runlevel/pkg/clusteroperator"
	"github.com/runlevel/runlevel/pkg/infra/v1alpha1"
	"github.com/runlevel/runlevel/pkg/leader"
	"github.com/runlevel/runlevel/pkg/metricsserver"
	"github.com/runlevel/runlevel/pkg/probes"
)

// DefaultNamespace is where the controller is, and its Lease.
const DefaultNamespace = "runlevel-machines"

// programName is the name of the Lease, of the ClusterOperator and of the service account.
const programName = "machine-controller"

// Options say how the controllers run. The zero value works.
type Options struct {
	Namespace string // of the Lease; DefaultNamespace if it is empty
	Name      string // of this process, as the holder of the Lease; its host name if it is empty
	Version   string // of the release, which the ClusterOperator reports
	Listen    string // the address of /healthz and /readyz; empty for none
	Metrics   metricsserver.Serving
	// LeaseDuration is how long the Lease outlives a leader that died; 15 seconds if it is 0.
	LeaseDuration time.Duration
	// Concurrency is how many Machines are worked on at once; 20 if it is 0.
	Concurrency int
	// Dialects are the APIs whose Machines are worked on; OpenShift's alone if there are none.
	Dialects []MachineDialect
}

func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, DefaultNamespace)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 15*time.Second)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	if len(o.Dialects) == 0 {
		o.Dialects = []MachineDialect{OpenShift}
	}
	return o
}

// Run runs the controllers until ctx ends. It ends with an error when the Lease is lost.
func Run(ctx context.Context, connection *rest.Config, o Options) error {
	o = o.withDefaults()
	if err := checkDialects(o.Dialects); err != nil {
		return err
	}
	connection = rest.CopyConfig(connection)
	connection.QPS = -1 // the API server's own flow control says how much is too much
	lease, err := leader.New(connection, leader.Options{
		Namespace: o.Namespace, Name: programName, Replica: o.Name, Duration: o.LeaseDuration,
	})
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	p := probes.New(lease)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.Serve(ctx, o.Listen) })
	group.Go(func() error { return run(ctx, connection, o, lease, p) })
	return group.Wait()
}

// run sets up the controllers once the API server answers, and runs them.
func run(ctx context.Context, connection *rest.Config, o Options, lease *leader.ElectionLease, p *probes.Probes) error {
	if err := probes.AwaitServer(ctx, connection); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	denials := &clusteroperator.Denials{}
	m, err := newManager(denials.Watch(lease.Fence(connection)), lease, o)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if err := addControllers(ctx, m, o); err != nil {
		return fmt.Errorf("add the controllers: %w", err)
	}
	if err := addMetrics(ctx, m, o); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	r, err := newReporter(connection, m, denials, o.Version)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if err := m.Add(r); err != nil {
		return err
	}
	p.Watch(m)
	return m.Start(ctx)
}

// NewScheme returns the kinds that the controllers know.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, configv1.Install, machinev1beta1.Install, clusterv1.AddToScheme, runtimev1.AddToScheme,
		v1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func newManager(connection *rest.Config, lease *leader.ElectionLease, o Options) (ctrl.Manager, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme:     scheme,
		Controller: controllerConfig(),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: trimNode}},
		},
		// Pods would be most of the cache. Draining lists those of one node.
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
		Metrics: server.Options{BindAddress: "0"}, // which package metricsserver serves
	}
	lease.Configure(&options)
	return ctrl.NewManager(connection, options)
}

// controllerConfig is what holds for each of the controllers.
func controllerConfig() config.Controller {
	return config.Controller{
		SkipNameValidation: ptr.To(true),
		// An informer that can't be filled, for want of rights or of a definition, costs its controller and no other one: it
		// is tried again, and Degraded tells.
		CacheSyncTimeout: 1000 * time.Hour,
		// When the priority queue of controller-runtime is shut down while it hands out an item, workers wait in it for good,
		// and the process ends only after 30 s (kubernetes-sigs/controller-runtime#3538, mended in 0.25).
		UsePriorityQueue: ptr.To(false),
	}
}

// trimNode leaves out of a cached Node what no controller reads, and what is most of it.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
		node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	}
	return object, nil
}
