// Package metrics computes the metrics of a release from the state at one moment: those of
// OpenShift's cluster-version operator, with their names and labels, and Runlevel's own. It sends no requests and keeps
// nothing but counters.
//
// The metrics of the cluster-version operator are in upstream.go, Runlevel's own in own.go, with the counters. Start
// with Reading.Collect.
package metrics

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Reading is the state at the moment of a scrape.
type Reading struct {
	Version   *configv1.ClusterVersion // nil if there is none
	Operators []configv1.ClusterOperator
	Applied   *clusterversion.AppliedRelease // nil until there is one
	Durations map[string]record.Durations    // mode -> durations of its last complete apply
	Unwatched int                            // kinds whose changes are not seen
	Retrieved time.Time                      // time of the update service's last valid response; zero if there is none
	FullPass  time.Time                      // time when all objects were last applied or checked; zero if unknown
}

// A sink takes metrics.
type sink chan<- prometheus.Metric

// gauge adds a value. An invalid one is left out.
func (s sink) gauge(metric *prometheus.Desc, value float64, labels ...string) {
	for i := range labels {
		labels[i] = label(labels[i])
	}
	if sample, err := prometheus.NewConstMetric(metric, prometheus.GaugeValue, value, labels...); err == nil {
		s <- sample
	}
}

// maxLabel limits the bytes of a label: names of objects are not longer.
const maxLabel = 253

// label returns an untrusted text as the value of a label.
func label(text string) string {
	return printable.Truncate(printable.Line(text), maxLabel)
}

// describe returns the description of a metric.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// truth returns 1 for true, and 0 for false.
func truth(isSo bool) float64 {
	if isSo {
		return 1
	}
	return 0
}

// moment returns a time in seconds since 1970; 0 for none.
func moment(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
