package operator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// newState returns a ClusterVersion that reports its updates, with versions in its history, and ~ before partial ones.
func newState(history, failing string) *configv1.ClusterVersion {
	v := &configv1.ClusterVersion{}
	v.Annotations = map[string]string{reportsAnnotation: "https://updates.example/reports"}
	v.Labels = map[string]string{ringLabel: "late"}
	for name := range strings.FieldsSeq(history) {
		entry := configv1.UpdateHistory{Version: strings.TrimPrefix(name, "~"), State: configv1.CompletedUpdate}
		if entry.Version != name {
			entry.State = configv1.PartialUpdate
		}
		v.Status.History = append(v.Status.History, entry)
	}
	if failing != "" {
		v.Status.Conditions = []configv1.ClusterOperatorStatusCondition{{
			Type: clusterversion.Failing, Status: configv1.ConditionTrue, Reason: failing, Message: "Secret shop",
		}}
	}
	return v
}

func TestReportsOfStates(t *testing.T) {
	for _, c := range []struct{ history, failing, want string }{
		{"~1.0.0", "", "Began 1.0.0 from  "},
		{"1.0.0", "", "Succeeded 1.0.0 from  "},
		{"~1.0.1 1.0.0", "", "Began 1.0.1 from 1.0.0 "},
		{"~1.0.1 1.0.0", "Slow", "Failed 1.0.1 from 1.0.0 Slow"},
		{"1.0.1 ~1.0.2 1.0.0", "", "RolledBack 1.0.2 from 1.0.1 "},
		{"1.0.1 1.0.0", "Slow", "Failed 1.0.1 from 1.0.0 Slow"},
		{"1.0.2 ~1.0.1 1.0.0", "", "Succeeded 1.0.2 from 1.0.0 "},
		{"~1.0.0 1.0.1 1.0.0", "Slow", "RolledBack 1.0.1 from 1.0.0 "},
	} {
		r := reportOf(newState(c.history, c.failing).Status)
		if got := string(r.Condition) + " " + r.Version + " from " + r.From + " " + r.Reason; got != c.want {
			t.Errorf("%s, failing %q: %s, want %s", c.history, c.failing, got, c.want)
		}
	}
}

// TestReportsOfTestedUpdates: an update with tests is a success once they have passed. A release whose tests never ran
// stays one while the next update is requested.
func TestReportsOfTestedUpdates(t *testing.T) {
	for reason, want := range map[string]report.Condition{
		automatic.RunningTests: report.Began, automatic.FailedTests: report.Failed,
		automatic.Updating: report.Succeeded,
	} {
		status := newState("1.0.1 1.0.0", "").Status
		status.Conditions = []configv1.ClusterOperatorStatusCondition{{
			Type: clusterversion.AutomaticUpdates, Status: configv1.ConditionTrue, Reason: reason,
		}}
		if got := reportOf(status).Condition; got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
}

// TestReportsAreSentUntilTheyAreAccepted, or until there is another state, by a clock of the test.
func TestReportsAreSentUntilTheyAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := newReporter(false)
		var sent []report.Report
		answer := errors.New("away")
		r.send = func(_ context.Context, d delivery) error {
			sent = append(sent, d.report)
			return answer
		}
		follow := func(v *configv1.ClusterVersion) {
			t.Helper()
			if _, problem := r.url(v); problem != "" {
				t.Error(problem)
			}
			r.follow(v, v.Status, "an-id", time.Now())
		}
		follow(newState("~1.0.1 1.0.0", "")) // it is replaced before it is read
		follow(newState("~1.0.1 1.0.0", "Slow"))
		go func() { _ = r.run(ctx) }()
		<-time.After(2 * time.Hour)
		synctest.Wait()
		if len(sent) < 10 || len(sent) > 40 {
			t.Errorf("%d attempts in two hours", len(sent))
		}
		for _, got := range sent {
			isSame := got.Condition == report.Failed && got.Time.Equal(sent[0].Time)
			if !isSame || got.ID != "an-id" || got.Ring != "late" {
				t.Fatalf("reported %+v", got)
			}
		}
		sent, answer = nil, nil
		follow(newState("1.0.1 1.0.0", ""))
		synctest.Wait()
		follow(newState("1.0.1 1.0.0", ""))
		<-time.After(2 * time.Hour)
		if len(sent) != 1 || sent[0].Condition != report.Succeeded {
			t.Errorf("reported %+v", sent)
		}
		silent := newState("~1.0.2 1.0.1", "")
		delete(silent.Annotations, reportsAnnotation)
		follow(silent)
		synctest.Wait()
		if len(sent) != 1 {
			t.Error("reports do not end with the annotation")
		}
		for _, bad := range []string{"", "updates.example", "http://updates.example", "ftp://a.example", "https://"} {
			silent.Annotations[reportsAnnotation] = bad
			_, got := r.url(silent)
			if !strings.HasPrefix(got, "The annotation runlevel.dev/report-updates is not a URL") {
				t.Errorf("of %q: %s", bad, got)
			}
		}
		cancel()
		synctest.Wait()
	})
}
