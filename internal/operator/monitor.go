package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	runtimecache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/operator/metrics"
	"github.com/runlevel/runlevel/internal/program/webserver"
)

// A monitor is the Prometheus collector of the operator. It computes the metrics at each scrape. A replica without the
// lock only reports that it does not lead.
type monitor struct {
	machine *stateMachine
	ctx     context.Context // context of the operator: a scrape has none
	client  client.Reader   // reads from the cache
}

// registerMonitor adds the metrics to a manager, and counts the condition transitions of ClusterOperators.
func registerMonitor(ctx context.Context, manager ctrl.Manager, machine *stateMachine) error {
	m := &monitor{machine: machine, ctx: ctx, client: manager.GetClient()}
	operators, err := manager.GetCache().GetInformer(ctx, &configv1.ClusterOperator{},
		runtimecache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := operators.AddEventHandler(transitions(machine.counters)); err != nil {
		return err
	}
	registry := prometheus.NewRegistry() // not the global registry: a process may run several operators
	registry.MustRegister(m, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	serving := machine.options.Metrics
	serving.Program = "runlevel-operator"
	return webserver.ServeMetrics(ctx, manager, manager.GetConfig(), registry, serving)
}

var leads = prometheus.NewDesc("runlevel_leader",
	"1 for the replica that holds the lock of the release, 0 for one that waits for it.", nil, nil)

// Describe sends nothing: the metrics depend on the release.
func (m *monitor) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of this moment.
func (m *monitor) Collect(ms chan<- prometheus.Metric) {
	if !m.machine.holds() {
		ms <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 0)
		return
	}
	ms <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 1)
	m.machine.counters.Collect(ms)
	reading, err := m.read(m.ctx)
	if err != nil {
		ms <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	reading.Collect(ms)
}

// read returns the present state. The ClusterOperators belong to the cache, and must not be changed.
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
	reading.Retrieved = m.machine.updates.lastAnswer()
	out := m.machine.output()
	reading.Applied, reading.Unwatched, reading.FullPass = out.Applied, out.Unwatched, out.FullPass
	if out.Record != nil {
		reading.Durations = out.Record.Durations
	}
	return reading, nil
}

// transitions counts the condition transitions of ClusterOperators.
func transitions(counters *metrics.Counters) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			counters.Changed(before.(*configv1.ClusterOperator), after.(*configv1.ClusterOperator))
		},
		DeleteFunc: func(deleted any) {
			if name, err := cache.ObjectToName(deleted); err == nil {
				counters.Deleted(name.Name)
			}
		},
	}
}
