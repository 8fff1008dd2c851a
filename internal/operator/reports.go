package operator

import (
	"context"
	"net/url"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/config/clusteroperator/v1helpers"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// reportsAnnotation is the URL to which a cluster reports its updates, as an annotation of the ClusterVersion.
const reportsAnnotation = "runlevel.dev/report-updates"

// A delivery is a report, and the URL that it is sent to.
type delivery struct {
	url    string
	report report.Report
}

// isSame reports whether two deliveries are of the same change.
func (d delivery) isSame(other delivery) bool {
	d.report.Time, d.report.Reason = other.report.Time, other.report.Reason
	return d == other
}

// A reporter sends the state of the newest update, after each change. It sends a state until it is accepted, or until
// there is another one, and also after a restart of the operator: receivers ignore a repeated report.
type reporter struct {
	insecure bool // plain http will do
	send     func(context.Context, delivery) error
	states   chan delivery // the last state that was not read
	last     delivery      // only used by follow
}

func newReporter(insecure bool) *reporter {
	send := func(ctx context.Context, d delivery) error {
		client, err := oci.HTTPClient(insecure)
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		return report.Send(ctx, client, d.url, d.report)
	}
	return &reporter{insecure: insecure, send: send, states: make(chan delivery, 1)}
}

// retryReport is the backoff of a report that was not accepted.
var retryReport = wait.Backoff{Duration: 5 * time.Second, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 10 * time.Minute}

// run sends reports until ctx ends.
func (r *reporter) run(ctx context.Context) error {
	var current delivery
	backoff := retryReport
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case current = <-r.states:
			backoff = retryReport
		case <-retry:
		}
		retry = nil
		if current.url == "" {
			continue
		}
		if err := r.send(ctx, current); err != nil {
			ctrl.LoggerFrom(ctx).Info("update not reported", "reason", err.Error())
			retry = time.After(backoff.Step())
		}
	}
}

// url returns the URL to report to, or the error in the annotation.
func (r *reporter) url(v *configv1.ClusterVersion) (text, problem string) {
	text, isSet := v.Annotations[reportsAnnotation]
	address, err := url.Parse(text)
	if isSet && (err != nil || address.Host == "" ||
		address.Scheme != "https" && (address.Scheme != "http" || !r.insecure)) {
		return "", "The annotation " + reportsAnnotation + " is not a URL: write https://HOST/reports"
	}
	return text, ""
}

// follow reports the next status of a ClusterVersion if it has changed. The ID is the one of the record; without
// one, nothing has been applied yet.
func (r *reporter) follow(v *configv1.ClusterVersion, status configv1.ClusterVersionStatus, id string, now time.Time) {
	var next delivery
	if text, _ := r.url(v); text != "" && id != "" && len(status.History) > 0 {
		next = delivery{text, reportOf(status)}
		next.report.ID, next.report.Ring, next.report.Time = id, v.Labels[ringLabel], now
	}
	if next.isSame(r.last) {
		return
	}
	r.last = next
	select {
	case <-r.states: // it was not read, and is outdated
	default:
	}
	r.states <- next
}

// reportOf returns the state of the newest update. A rollback is a state of the update before. Messages of conditions
// stay on the cluster: they name its objects. An automatic update with tests is a success once they have passed.
func reportOf(status configv1.ClusterVersionStatus) report.Report {
	history := status.History
	newest := history[0]
	reported := report.Report{Version: newest.Version}
	if last := clusterversion.LastCompleted(history[1:]); last != nil {
		reported.From = last.Version
	}
	failing := v1helpers.FindStatusCondition(status.Conditions, clusterversion.Failing)
	automatics := ""
	if c := v1helpers.FindStatusCondition(status.Conditions, clusterversion.AutomaticUpdates); c != nil {
		automatics = c.Reason
	}
	switch {
	case automatic.IsRollback(history):
		reported.From, reported.Version = newest.Version, history[1].Version
		reported.Condition = report.RolledBack
	case failing != nil && failing.Status == configv1.ConditionTrue:
		reported.Condition, reported.Reason = report.Failed, failing.Reason
	case automatics == automatic.FailedTests, automatics == automatic.RollingBack:
		reported.Condition, reported.Reason = report.Failed, automatics
	case automatics == automatic.RunningTests:
		reported.Condition = report.Began
	case newest.State == configv1.CompletedUpdate:
		reported.Condition = report.Succeeded
	default:
		reported.Condition = report.Began
	}
	return reported
}
