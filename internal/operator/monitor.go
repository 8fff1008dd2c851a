package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/operator/metrics"
	"github.com/runlevel/runlevel/internal/program/metricsserver"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// A monitor is the Prometheus collector of the operator: it computes the metrics at each scrape.
// A replica that does not hold the lock only reports that.
type monitor struct {
	applier *applier
	ctx     context.Context // of the operator: a scrape has none
	client  client.Reader   // which reads from the cache
	counts  *metrics.Counters

	mu       sync.Mutex
	recorded *record.Record
	deletes  []precondition.Delete
	fullPass time.Time
}

func newMonitor(a *applier) *monitor { return &monitor{applier: a, counts: metrics.NewCounters()} }

// register adds the metrics to a manager, and counts the condition transitions of ClusterOperators.
func (m *monitor) register(ctx context.Context, to ctrl.Manager, o metricsserver.Serving) error {
	m.ctx, m.client = ctx, to.GetClient()
	operators, err := to.GetCache().GetInformer(ctx, &configv1.ClusterOperator{}, runtimecache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := operators.AddEventHandler(m.transitions()); err != nil {
		return err
	}
	registry := prometheus.NewRegistry() // of this operator: there may be several in one process
	registry.MustRegister(m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return metricsserver.Serve(to, to.GetConfig(), "runlevel-operator", registry, o)
}

var leads = prometheus.NewDesc("runlevel_leader",
	"1 for the replica that holds the lock of the release, 0 for one that waits for it.", nil, nil)

// Describe sends nothing: the metrics depend on the release.
func (m *monitor) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of this moment.
func (m *monitor) Collect(to chan<- prometheus.Metric) {
	if !m.applier.holds() {
		to <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 0)
		return
	}
	to <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 1)
	m.counts.Collect(to)
	reading, err := m.read(m.ctx)
	if err != nil {
		to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	reading.Collect(to)
}

// read returns the state of this moment. The ClusterOperators are those of the cache: they are not changed.
func (m *monitor) read(ctx context.Context) (metrics.Reading, error) {
	var reading metrics.Reading
	var version configv1.ClusterVersion
	switch err := m.client.Get(ctx, client.ObjectKey{Name: clusterVersionMeta.Name}, &version); {
	case err == nil:
		reading.Version = &version
	case client.IgnoreNotFound(err) != nil:
		return reading, fmt.Errorf("read the ClusterVersion: %w", err)
	}
	var operators configv1.ClusterOperatorList
	if err := m.client.List(ctx, &operators, client.UnsafeDisableDeepCopy); err != nil {
		return reading, fmt.Errorf("list ClusterOperators: %w", err)
	}
	reading.Operators = operators.Items
	m.mu.Lock()
	recorded, deletes := m.recorded, m.deletes
	reading.FullPass = m.fullPass
	m.mu.Unlock()
	if recorded != nil {
		reading.Durations = recorded.Durations
	}
	for _, d := range deletes {
		reading.Problems = append(reading.Problems,
			metrics.ObjectProblem{State: metrics.Deleting, Object: d.ID, Since: d.RequestedAt.Time})
	}
	reading.Retrieved = m.applier.updates.lastAnswer()
	m.applier.measure(&reading)
	return reading, nil
}

// measure adds the state of the applier.
func (a *applier) measure(reading *metrics.Reading) {
	if reading.Applied = a.State().Applied; reading.Applied == nil {
		return
	}
	reading.Unwatched = a.session.Kept().UnwatchedKinds()
	contested := map[kinds.ID]bool{}
	for _, problem := range a.session.Kept().Problems() {
		contested[*problem.Object] = problem.Type == keep.Contested
	}
	for _, p := range reading.Applied.Problems {
		state := metrics.Failing
		switch {
		case !p.HasObject():
			continue
		case contested[p.ID]:
			state = metrics.Contested
		case p.IsWait:
			state = metrics.Waiting
		}
		reading.Problems = append(reading.Problems, metrics.ObjectProblem{State: state, Object: p.ID, Since: p.Since})
	}
}

// setRecord sets the record that was read last.
func (m *monitor) setRecord(recorded *record.Record, deletes []precondition.Delete) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recorded, m.deletes = recorded, deletes
}

// setFullPass records that all objects of the release were applied, or checked.
func (m *monitor) setFullPass() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fullPass = m.applier.cluster.Now()
}

// applied counts failures of an apply.
func (m *monitor) applied(version string, event apply.Event) {
	if event.Type == apply.Retrying || event.Type == apply.Failing {
		m.counts.Failed(version)
	}
}

// kept counts the events of keeping the release in place.
func (m *monitor) kept(event keep.Event) {
	switch event.Type {
	case keep.Repaired:
		m.counts.Repaired(event.Object.GroupKind())
	case keep.Missed:
		m.counts.Missed()
	case keep.Passed:
		m.setFullPass()
	}
}

// transitions counts the condition transitions of ClusterOperators.
func (m *monitor) transitions() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			m.counts.Changed(before.(*configv1.ClusterOperator), after.(*configv1.ClusterOperator))
		},
		DeleteFunc: func(gone any) {
			if name, err := cache.ObjectToName(gone); err == nil {
				m.counts.Gone(name.Name)
			}
		},
	}
}
