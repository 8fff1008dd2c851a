package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// preview previews the apply of a version. The test fails if the preview writes.
func (r release) preview(version, files string, change ...func(*session.Options)) *session.Outcome {
	r.Helper()
	options := session.Options{Namespace: r.namespace}
	for _, fn := range change {
		fn(&options)
	}
	r.config = sandboxtest.ReadOnly(r, r.config)
	return session.Preview(r.Context(), r.connect(), r.load(version, files), options)
}

// described returns the results of an outcome, without times.
func described(outcome *session.Outcome) string {
	text := fmt.Sprintf("%s, before %q; %s\n", outcome.Mode, outcome.Previous, done(outcome))
	for _, orphan := range outcome.Orphans {
		text += "orphan " + orphan.ID.Name + "\n"
	}
	for _, pending := range outcome.Deletes {
		text += "pending " + pending.ID.Name + "\n"
	}
	return text + strings.Join(outcome.Notes, "\n")
}

func TestPreviewReportsTheEventsOfARun(t *testing.T) {
	r := newRelease(t)
	redder := strings.Replace(prices, "namespace: NS}}", "namespace: NS}, data: {red: '1'}}", 1)
	other := strings.NewReplacer("settings", "other").Replace(settings)
	for _, step := range []struct{ what, version, files, want string }{
		{"a first version", "1.0.0", settings + prices + other,
			`install, before ""; created other, created prices, created settings`},
		{"the same again", "1.0.0", settings + prices + other,
			`reconcile, before "1.0.0"; unchanged other, unchanged prices, unchanged settings`},
		{"an update", "1.0.1", withoutSettings + redder,
			`update, before "1.0.0"; configured prices, deleted settings` + "\norphan other"},
		{"the update again", "1.0.1", withoutSettings + redder,
			`reconcile, before "1.0.1"; unchanged prices, absent settings` + "\norphan other"},
	} {
		before := r.record()
		saw := r.preview(step.version, step.files)
		if saw.Err != nil {
			t.Errorf("%s: %v", step.what, saw.Err)
		}
		if diff := cmp.Diff(before, r.record()); diff != "" {
			t.Errorf("%s: the record is another: %s", step.what, diff)
		}
		if diff := cmp.Diff(step.want, strings.TrimSpace(described(saw))); diff != "" {
			t.Errorf("%s, the preview: %s", step.what, diff)
		}
		did := r.must(step.version, step.files)
		if diff := cmp.Diff(described(did), described(saw)); diff != "" {
			t.Errorf("%s (-run +preview): %s", step.what, diff)
		}
	}
}

// A preview and the next run treat the completed and pending deletes of an earlier version alike.
func TestAPreviewKnowsTheDeletesOfAnEarlierVersion(t *testing.T) {
	r := newRelease(t)
	maps := r.connect().Client.CoreV1().ConfigMaps(r.namespace)
	r.must("1.0.0", settings+prices)
	held, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/cleanup"}
	if _, err = maps.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.must("1.0.1", withoutSettings+prices)
	saw := r.preview("1.0.1", withoutSettings+prices)
	if want := "reconcile, before \"1.0.1\"; unchanged prices, pending settings\npending " +
		"settings\n"; described(saw) != want {
		t.Errorf("while a finalizer holds the object: %s", described(saw))
	}
	if held, err = maps.Get(t.Context(), "settings", metav1.GetOptions{}); err == nil {
		held.Finalizers = nil
		_, err = maps.Update(t.Context(), held, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	saw = r.preview("1.0.1", withoutSettings+prices)
	if diff := cmp.Diff(described(r.must("1.0.1", withoutSettings+prices)), described(saw)); diff != "" {
		t.Errorf("after the object was deleted (-run +preview): %s", diff)
	}
}

// A preview shows the changes even if the gate blocks the update, and reports the failed checks unless the update is
// forced.
func TestAPreviewIsRefusedByTheGate(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", settings)
	r.begin("1.1.0", withoutSettings)
	const why = precondition.PendingDelete
	saw := r.preview("1.2.0", prices)
	if got := precondition.CheckNames(precondition.Blocking(saw.Findings)); !slices.Equal(got, []string{why}) ||
		saw.Err == nil || len(saw.Forced) > 0 {
		t.Errorf("%v, %v, forced %v", got, saw.Err, saw.Forced)
	}
	if want := "update, before \"1.1.0\"; created prices\npending settings\n"; described(saw) != want {
		t.Error(cmp.Diff(want, described(saw)))
	}
	if saw = r.preview("1.2.0", prices, force); saw.Err != nil || !slices.Equal(saw.Forced, []string{why}) {
		t.Errorf("forced: %v, %v", saw.Err, saw.Forced)
	}
}

// begin applies a version while its object is held.
func (r release) begin(version, files string) {
	r.Helper()
	maps := r.connect().Client.CoreV1().ConfigMaps(r.namespace)
	patch := func(finalizers string) error {
		_, err := maps.Patch(r.Context(), "settings", "application/merge-patch+json",
			[]byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		return err
	}
	if err := patch(`["example.com/cleanup"]`); err != nil {
		r.Fatal(err)
	}
	r.must(version, files)
}

// A preview does not wait for the lock, and names its holder.
func TestAPreviewDoesNotWaitForTheLock(t *testing.T) {
	name, text := test.Namespace(t), configMaps(20)
	s := newStopper(8)
	first := s.begin(t, name, text)
	c, err := cluster.Connect(sandboxtest.ReadOnly(t, test.Sandbox(t).Config))
	if err != nil {
		t.Fatal(err)
	}
	saw := session.Preview(t.Context(), c, load(t, name, "1.0.0", text), options())
	if saw.Report == nil || len(saw.Report.Changes) < 20 {
		t.Fatalf("%+v", saw)
	}
	var messages []string
	for _, finding := range saw.Findings {
		messages = append(messages, finding.Message)
	}
	if !strings.Contains(strings.Join(messages, "\n"), "first") {
		t.Errorf("no finding names the holder of the lock: %q, error %v", messages, saw.Err)
	}
	close(s.open)
	if outcome := <-first; outcome.Err != nil {
		t.Error(outcome.Err)
	}
}

// Without the right to read the record, a preview still shows the changes, and names the missing
// right.
func TestAPreviewWithoutTheRecord(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", settings)
	records := test.Namespace(t)
	r.config = test.Account(t, r.namespace, "reader",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	var saw *session.Outcome
	// rights take effect in a moment
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			saw = r.preview("1.0.1", settings+prices, func(options *session.Options) { options.Namespace = records })
			return saw.Report != nil && !strings.Contains(done(saw), "failed"), nil
		})
	// The annotation with the version selects the mode.
	if got := done(saw); got != "created prices, configured settings" || saw.Mode != graph.Update {
		t.Errorf("%s: %s", saw.Mode, got)
	}
	if len(saw.Notes) == 0 || !strings.HasPrefix(saw.Notes[0], "cannot read the release record (forbidden)") {
		t.Errorf("the notes are %q, want one about the record", saw.Notes)
	}
	if blocking := precondition.Blocking(saw.Findings); len(blocking) == 0 ||
		!strings.Contains(fmt.Sprint(saw.Err), "may not get, update, create configmaps") {
		t.Errorf("%v: %v", saw.Err, blocking)
	}
}
