// Package operator keeps a cluster at the release that its ClusterVersion requests, and reports the progress in its
// status. The ClusterVersion is OpenShift's, so oc adm upgrade is one of its clients.
//
// The operator holds the lock of the release, which makes one of several replicas the leader. Two types do the work.
// The reconciler (reconciler.go) computes the target of the ClusterVersion (target.go), sets it as the input of the
// state machine, and writes the status, which package clusterversion computes. The state machine (statemachine.go)
// accepts the target (candidate.go), applies it, and keeps it in place (current.go). Releases are read, and images
// cached on disk, in releases.go; updates.go queries the update service, and package prometheus evaluates risks of
// updates. Start with Run.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/operator/prometheus"
	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options configure an operator.
type Options struct {
	// Payload is the release to apply if the ClusterVersion requests none: an image by digest, or a folder.
	Payload    string
	Namespace  string   // namespace of the record and the lock; empty means session.DefaultNamespace
	Name       string   // name of this process, as the holder of the lock; empty means its host name
	Container  string   // container of this process, if it is the only operator there: see lock.Options
	Profile    string   // profile of the cluster; empty takes manifests of all profiles
	Exclude    string   // leaves out manifests that are annotated exclude.release.openshift.io/NAME
	Features   Features // features of a cluster without FeatureGate "cluster"
	Standard   ready.Standard
	Listen     string // the address of /healthz and /readyz; empty for none
	CacheDir   string // the folder for pulled images; empty for none
	Source     source.Options
	Metrics    webserver.Serving
	Prometheus prometheus.Options // Prometheus that evaluates risks of updates
	Cluster    string             // the name of the cluster, in notifications
	NotifyDir  string             // a folder with files of URLs to notify; empty for none
	// Serve adds servers to the manager, beside those of probes and metrics; nil for none.
	Serve func(context.Context, ctrl.Manager) error
	// StrictTombstones refuses a minor update with tombstones that the release before had, too.
	StrictTombstones bool
	// UnknownFlags are flags of the operator's file that it does not know, which ClusterVersion reports.
	UnknownFlags []string
	// LockDuration is the time until the lock of a killed leader expires; 0 means half a minute.
	LockDuration time.Duration

	limits limits // limits of probes; empty means the usual ones
}

// Run runs an operator until ctx ends. It waits for an API server that does not answer. If another process takes the
// lock, it returns an error.
func Run(ctx context.Context, connection *rest.Config, o Options) error {
	o.Namespace = cmp.Or(o.Namespace, session.DefaultNamespace)
	o.Standard = cmp.Or(o.Standard, ready.Upstream)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	c, err := cluster.Connect(connection)
	if err != nil {
		return err
	}
	m := newStateMachine(c, o)
	if m.prometheus, err = prometheus.New(o.Prometheus, m.notify); err != nil {
		return err
	}
	if o.NotifyDir != "" {
		m.sender = notify.NewSender(ctx,
			notify.Options{Folder: o.NotifyDir, Cluster: o.Cluster, Log: ctrl.Log.WithName("notify")})
		defer func() { _ = m.sender.Close(notifyPatience) }() // Close logs notifications that could not be delivered
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.health.probes(m).Serve(ctx, o.Listen) })
	group.Go(func() error { return m.manage(ctx, connection) })
	return group.Wait()
}

// notifyPatience limits how long an operator that ends waits for the receivers of notifications.
const notifyPatience = 5 * time.Second

// manage runs the controller, and leads if it gets the lock, once the API server answers.
func (m *stateMachine) manage(ctx context.Context, connection *rest.Config) error {
	if err := whenServed(ctx, connection, func() error { return ensureDefinitions(ctx, m.cluster) }); err != nil {
		return ignoreCanceled(ctx, fmt.Errorf("install the definitions of ClusterVersion and ClusterOperator: %w", err))
	}
	controllers, err := newManager(m.health.watches.config(connection))
	if err != nil {
		return err
	}
	r := &reconciler{client: controllers.GetClient(), cluster: m.cluster, options: m.options, machine: m}
	if err := r.register(controllers); err != nil {
		return fmt.Errorf("watch ClusterVersions: %w", err)
	}
	if err := registerMonitor(ctx, controllers, m); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	if m.options.Serve != nil {
		if err := m.options.Serve(ctx, controllers); err != nil {
			return err
		}
	}
	lead := func(ctx context.Context) error { return ignoreCanceled(ctx, m.lead(ctx, connection)) }
	for _, do := range []manager.RunnableFunc{lead, m.updates.run, m.reporter.run, m.prometheus.Run} {
		if err := controllers.Add(do); err != nil {
			return err
		}
	}
	return controllers.Start(ctx)
}

// whenServed calls a function once the API server answers, and again if it fails with an outage.
func whenServed(ctx context.Context, connection *rest.Config, do func() error) error {
	for reported := ""; ; {
		if err := startup.AwaitServer(ctx, connection); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := do()
		if ctx.Err() != nil || !cluster.IsOutage(err) {
			return err
		}
		if err.Error() != reported {
			reported = err.Error()
			ctrl.Log.Info("the API server is not available, retrying", "reason", reported)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// newManager returns a manager of the ClusterVersion controller. It has no election of its own: the holder of the lock
// of the release leads.
func newManager(connection *rest.Config) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{configv1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	m, err := ctrl.NewManager(connection, ctrl.Options{
		Scheme: scheme,
		Controller: config.Controller{
			SkipNameValidation: ptr.To(true), // one process may run several operators
			// An operator that ended because its caches can't list, without rights or without an answer, would be
			// started again after longer and longer pauses. The operator is not ready until its caches have synced, and
			// its probes fail if that takes too long.
			CacheSyncTimeout: 1000 * time.Hour,
			// Workers of the priority queue may never end (kubernetes-sigs/controller-runtime#3538, fixed in 0.25).
			UsePriorityQueue: ptr.To(false),
		},
		Cache: cache.Options{
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: onlyGates()},
		},
		// Probes and metrics are served without the manager.
		HealthProbeBindAddress: "0", Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return m, nil
}

// lead acquires the lock of the release, and applies under it. A replica that does not get the lock waits for it.
func (m *stateMachine) lead(ctx context.Context, connection *rest.Config) error {
	log := ctrl.LoggerFrom(ctx)
	options := lock.Options{
		Container: m.options.Container, Keeps: true, Wait: true, Duration: m.options.LockDuration,
		OnHeld: func(h lock.Holder) { log.Info("waiting for the lock of the release", "holder", h.Name) },
	}
	if options.Container == "" {
		options.Holder = lock.NewHolder("runlevel-operator " + m.options.Name)
	}
	var s *session.Session
	err := whenServed(ctx, connection, func() (err error) {
		s, err = session.Hold(ctx, m.cluster, payload.DefaultName, m.options.Namespace, options)
		return err
	})
	if err != nil {
		return err
	}
	log.Info("holding the lock of the release")
	return s.Release(m.run(ctx, s))
}

// ignoreCanceled returns nil for an error that follows from the end of ctx.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
