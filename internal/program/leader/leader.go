// Package leader runs the controllers of a program in one of its replicas. It elects the leader by a Lease, and
// prevents a replica that has lost the Lease from writing: the election alone notices too late that another replica
// took over while the process was asleep. It serves probes and metrics in all replicas, and reports a ClusterOperator.
//
// The package is for programs of controller-runtime. A Program adds its controllers. The lock of a release, which
// outlives its process, is in package lock.
//
// Start with Program.Run.
package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/bootclock"
	"github.com/runlevel/runlevel/internal/record/lock"
)

// A Lease is the lock of leader election. It records the time of its last renewal.
type Lease struct {
	resourcelock.Interface
	container string
	duration  time.Duration
	// the time before the last renewal was sent, by package bootclock; 0 if the Lease is not held
	renewedAt   atomic.Int64
	requestedAt atomic.Int64 // the time of the last request, by the same clock; 0 if there was none
}

// newLease returns the Lease of a program, not held yet. The name of its holder gets a random suffix: two processes
// with the same name are two replicas.
func newLease(connection *rest.Config, program string, o Options) (*Lease, error) {
	l := &Lease{container: o.Container, duration: o.LeaseDuration}
	connection = rest.CopyConfig(connection)
	connection.Timeout = l.renewDeadline() / 2
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	l.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: program},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: lock.NewHolder(cmp.Or(o.Container, o.Name))},
	}
	return l, nil
}

// renewDeadline returns the time after which a leader that can't renew its Lease gives up. Other replicas wait longer.
func (l *Lease) renewDeadline() time.Duration { return l.duration * 2 / 3 }

// Get reads the Lease. A Lease of an earlier process of this container is free, because that process has ended.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.requestedAt.Store(int64(bootclock.Now()))
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && lock.IsEarlier(record.HolderIdentity, l.container, l.Identity()) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// checkElection is a probe. It fails if the election hangs: leaders and waiting replicas request the Lease all the
// time, whether the API server answers or not.
func (l *Lease) checkElection(*http.Request) error {
	requested := l.requestedAt.Load()
	silent := bootclock.Now() - time.Duration(requested)
	if requested == 0 || silent < 4*l.renewDeadline() {
		return nil
	}
	return fmt.Errorf("no request for the Lease was sent for %s", silent.Round(time.Second))
}

// Create creates the Lease.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.recordRenewal(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update acquires, renews or releases the Lease.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.recordRenewal(record, func() error { return l.Interface.Update(ctx, record) })
}

// recordRenewal sends a record of the Lease, and stores the time if that renews the Lease.
func (l *Lease) recordRenewal(record resourcelock.LeaderElectionRecord, send func() error) error {
	sentAt := int64(bootclock.Now())
	l.requestedAt.Store(sentAt)
	err := send()
	switch {
	case err != nil:
	case record.HolderIdentity == l.Identity():
		l.renewedAt.Store(sentAt)
	default:
		l.renewedAt.Store(0)
	}
	return err
}

// IsHeld reports whether the Lease was renewed so recently that no other replica can have acquired it.
func (l *Lease) IsHeld() bool {
	renewed := l.renewedAt.Load()
	return renewed != 0 && bootclock.Now()-time.Duration(renewed) < l.renewDeadline()
}

// ErrFenced is the error of writes without the Lease.
var ErrFenced = errors.New(
	"the Lease was not renewed in time, so that another replica may be at work: nothing is written",
)

// fence returns a connection that refuses writes while the Lease is not held.
func (l *Lease) fence(connection *rest.Config) *rest.Config {
	return cluster.Fence(connection, func(context.Context) error {
		if !l.IsHeld() {
			return ErrFenced
		}
		return nil
	})
}

// Metrics are the metrics of a program, beside the metrics of controller-runtime.
type Metrics struct {
	Leads   string                         // the name of the metric with the value 1 for the leader
	Collect func(chan<- prometheus.Metric) // collects the metrics of the leader
	Counted []prometheus.Collector         // counters of events
}

func (m Metrics) gatherer(manager ctrl.Manager) prometheus.Gatherer {
	own := prometheus.NewRegistry()
	own.MustRegister(&leaderCollector{
		leads: prometheus.NewDesc(m.Leads, "1 for the replica that holds the Lease, 0 for one that waits for it.",
			nil, nil),
		elected: manager.Elected(), collect: m.Collect,
	})
	own.MustRegister(m.Counted...)
	return prometheus.Gatherers{own, metrics.Registry}
}

// A leaderCollector collects whether the replica is the leader, and in the leader the metrics of the controllers.
type leaderCollector struct {
	leads   *prometheus.Desc
	elected <-chan struct{} // closed once this replica leads
	collect func(chan<- prometheus.Metric)
}

// Describe sends no descriptors: which metrics exist depends on the cluster.
func (c *leaderCollector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current metrics.
func (c *leaderCollector) Collect(ms chan<- prometheus.Metric) {
	select {
	case <-c.elected:
		ms <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 1)
		c.collect(ms)
	default:
		ms <- prometheus.MustNewConstMetric(c.leads, prometheus.GaugeValue, 0)
	}
}
