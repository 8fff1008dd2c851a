package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/runlevel/runlevel/internal/program/clusteroperator"
	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/internal/program/webserver"
)

// A Program is controllers that run in the leader of its replicas.
type Program struct {
	Name      string       // name of the Lease, the ClusterOperator and the service account
	Namespace string       // namespace of the service account
	Manager   ctrl.Options // the scheme, and the caches
	// SetUp adds the controllers to a manager, and returns their metrics and status. Writes to the API server are
	// fenced; isLeader is for other writes.
	SetUp func(ctx context.Context, m ctrl.Manager, isLeader func() bool) (Controllers, error)
}

// Controllers contains the metrics and the status of the controllers of a program.
type Controllers struct {
	Metrics        Metrics
	RelatedObjects []configv1.ObjectReference
	// Awaited is an object of the kind whose cache has to be synced before the controllers are available, and Awaits
	// the message until then.
	Awaited client.Object
	Awaits  string
	// Status returns the state of available controllers. It is called often, and should read from caches.
	Status func(context.Context) (clusteroperator.Status, error)
}

// Options configure a replica. The zero value works.
type Options struct {
	Namespace string // namespace of the Lease; empty for the program's namespace
	Name      string // name of this process, as the holder of the Lease; empty for its host name
	Container string // container of this process, if no other process of the program runs there: see lock.Options
	Version   string // version of the release, which the ClusterOperator reports
	Listen    string // the address of /healthz and /readyz; empty for none
	Metrics   webserver.Serving
	// LeaseDuration limits the time that the Lease outlives a dead leader; 15 seconds if it is 0.
	LeaseDuration time.Duration
}

// Run runs the controllers until ctx ends. It ends with an error when the Lease is lost.
func (p Program) Run(ctx context.Context, connection *rest.Config, o Options) error {
	o.Namespace = cmp.Or(o.Namespace, p.Namespace)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 15*time.Second)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	connection = rest.CopyConfig(connection)
	connection.QPS = -1 // unlimited: the API server has its own flow control
	lease, err := newLease(connection, p.Name, o)
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	health := &checks{lease: lease}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return health.probes().Serve(ctx, o.Listen) })
	group.Go(func() error { return p.run(ctx, connection, o, health) })
	return group.Wait()
}

// run sets up the controllers once the API server answers, and runs them.
func (p Program) run(ctx context.Context, connection *rest.Config, o Options, health *checks) error {
	if err := startup.AwaitServer(ctx, connection); err != nil || ctx.Err() != nil {
		return err
	}
	lease, denials := health.lease, &clusteroperator.Denials{}
	m, err := ctrl.NewManager(denials.Watch(lease.fence(connection)), p.managerOptions(lease))
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	controllers, err := p.SetUp(ctx, m, lease.IsHeld)
	if err != nil {
		return err
	}
	o.Metrics.Program = p.Name
	if err := webserver.ServeMetrics(ctx, m, denials.Watch(connection), controllers.Metrics.gatherer(m),
		o.Metrics); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	reporter, err := clusteroperator.NewReporter(connection, clusteroperator.Options{
		Name: p.Name, Namespace: p.Namespace, Version: o.Version, RelatedObjects: controllers.RelatedObjects,
		Denials: denials,
		Status: func(ctx context.Context) (clusteroperator.Status, error) {
			return controllers.status(ctx, m.GetCache())
		},
	})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if err := m.Add(reporter); err != nil {
		return err
	}
	health.manager.Store(&m)
	return m.Start(ctx)
}

// managerOptions returns the options of a manager that runs its controllers while it holds the Lease.
func (p Program) managerOptions(lease *Lease) ctrl.Options {
	o := p.Manager
	o.Controller = ControllerConfig()
	o.Cache.DefaultTransform = cache.TransformStripManagedFields()
	o.Metrics = server.Options{BindAddress: "0"} // package webserver serves them
	o.LeaderElection = true
	o.LeaderElectionID = p.Name
	o.LeaderElectionResourceLockInterface = lease
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration = &lease.duration
	o.RenewDeadline = ptr.To(lease.renewDeadline())
	o.RetryPeriod = ptr.To(lease.duration / 10)
	return o
}

// ControllerConfig returns the configuration of all controllers.
func ControllerConfig() config.Controller {
	return config.Controller{
		SkipNameValidation: ptr.To(true), // a process may have one manager after another
		// An informer that can't sync, for lack of rights or of a definition, stops only its own controller: it is
		// retried, and reported in Degraded.
		CacheSyncTimeout: 1000 * time.Hour,
		// When the priority queue of controller-runtime is shut down while it hands out an item, workers wait in it for
		// good, and the process ends only after 30 s (kubernetes-sigs/controller-runtime#3538, fixed in 0.25).
		UsePriorityQueue: ptr.To(false),
	}
}

// status returns the state of the controllers.
func (c Controllers) status(ctx context.Context, objects cache.Cache) (clusteroperator.Status, error) {
	informer, err := objects.GetInformer(ctx, c.Awaited, cache.BlockUntilSynced(false))
	if err != nil || !informer.HasSynced() { // the kind may not be served yet
		return clusteroperator.Status{Awaits: c.Awaits}, nil
	}
	return c.Status(ctx)
}

// maxSyncWait limits the time that a readiness probe waits for caches.
const maxSyncWait = time.Second

// checks are the probes of a replica. They are served before the manager exists.
type checks struct {
	lease   *Lease
	manager atomic.Pointer[ctrl.Manager] // nil until it is set up
}

// probes returns the checks by their names.
func (c *checks) probes() startup.Probes {
	return startup.Probes{
		Alive: map[string]healthz.Checker{"election": c.lease.checkElection},
		Ready: map[string]healthz.Checker{"caches": c.checkCaches},
	}
}

// checkCaches fails until the caches are synced. A replica that waits for the Lease has not started its controllers: it
// is ready once it can take over.
func (c *checks) checkCaches(request *http.Request) error {
	m := c.manager.Load()
	if m == nil {
		return errors.New("the API server did not answer yet")
	}
	ctx, cancel := context.WithTimeout(request.Context(), maxSyncWait)
	defer cancel()
	if !(*m).GetCache().WaitForCacheSync(ctx) {
		return errors.New("not all objects were listed yet")
	}
	return nil
}
