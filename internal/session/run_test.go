package session_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

const (
	settings = `
-- 0000_10_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}}
`
	prices = `
-- 0000_10_web_prices.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: prices, namespace: NS}}
`
	withoutSettings = `
-- 0000_10_web_settings.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, annotations: {release.openshift.io/delete: "true"}}
`
)

func TestModeFollowsFromTheRecord(t *testing.T) {
	r := newRelease(t)
	for _, step := range []struct {
		what    string
		version string
		noWait  bool
		want    graph.Mode
	}{
		{"nothing was there", "1.0.0", true, graph.Install},
		{"the install was not completed", "1.0.0", false, graph.Install},
		{"it is all there", "1.0.0", false, graph.Reconcile},
		{"another version, of the same files", "1.0.1", true, graph.Update},
		{"the update was not completed", "1.0.1", false, graph.Update},
		{"it is all there again", "1.0.1", false, graph.Reconcile},
	} {
		outcome := r.roll(t.Context(), step.version, settings, func(options *session.Options) {
			options.Apply.NoWait = step.noWait
		})
		if outcome.Err != nil || outcome.Mode != step.want {
			t.Errorf("%s: mode is %s, want %s (%v)", step.what, outcome.Mode, step.want, outcome.Err)
		}
	}

	// A repair of an incomplete update does not complete it.
	r.roll(t.Context(), "1.0.2", settings, func(options *session.Options) { options.Apply.NoWait = true })
	r.roll(t.Context(), "1.0.2", settings, func(options *session.Options) { options.Apply.Mode = graph.Reconcile })
	if outcome := r.roll(t.Context(), "1.0.2", settings); outcome.Err != nil || outcome.Mode != graph.Update {
		t.Errorf("after a reconcile that was asked for: mode is %s (%v)", outcome.Mode, outcome.Err)
	}

	// If the record is lost, the Lease has the applied version. If both are lost, the objects still show that
	// there was a release.
	client := r.connect().Client
	if err := client.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "runlevel-release-"+r.namespace,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if outcome := r.roll(t.Context(), "1.0.2", settings); outcome.Err != nil || outcome.Mode != graph.Reconcile {
		t.Errorf("without its record: mode is %s (%v)", outcome.Mode, outcome.Err)
	}
	if err := client.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "runlevel-release-"+r.namespace,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoordinationV1().Leases(r.namespace).Delete(t.Context(), "runlevel-release-"+r.namespace,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if outcome := r.roll(t.Context(), "1.0.2", settings); outcome.Err != nil || outcome.Mode != graph.Update {
		t.Errorf("without its record and its Lease: mode is %s (%v)", outcome.Mode, outcome.Err)
	}
}

func TestLookWritesNothing(t *testing.T) {
	r := newRelease(t)
	c := r.connect()
	outcome := session.Inspect(t.Context(), c, r.load("1.0.0", settings),
		session.Options{Namespace: r.namespace + "-records"})
	if outcome.Err != nil || outcome.Mode != graph.Install || outcome.Report != nil {
		t.Errorf("%+v", outcome)
	}
	if _, err := c.Client.CoreV1().Namespaces().Get(t.Context(), r.namespace+"-records",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("a namespace was created for the record:", err)
	}
	if _, err := c.Client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "settings",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error("an object was created:", err)
	}
}

// A pending delete blocks the next minor version, for every caller, until the
// object is deleted. The delete stays in the record when a forced version has no tombstone.
func TestPendingDeleteBlocksLaterRuns(t *testing.T) {
	r := newRelease(t)
	maps := r.connect().Client.CoreV1().ConfigMaps(r.namespace)
	r.roll(t.Context(), "1.0.0", settings)
	held, err := maps.Get(t.Context(), "settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/cleanup"}
	if held, err = maps.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	outcome := r.roll(t.Context(), "1.1.0", withoutSettings)
	if outcome.Err != nil || len(outcome.Deletes) != 1 || outcome.Deletes[0].UID != held.UID {
		t.Fatalf("%+v", outcome)
	}

	outcome = r.roll(t.Context(), "1.2.0", prices)
	if got := precondition.CheckNames(precondition.Blocking(outcome.Findings)); outcome.Report != nil ||
		!slices.Equal(got, []string{precondition.PendingDelete}) {
		t.Errorf("the next minor version: %v, %v", got, outcome.Err)
	}
	if outcome = r.roll(t.Context(), "1.1.1", prices); outcome.Err != nil || len(outcome.Deletes) != 1 {
		t.Errorf("a patch: %v, %+v", outcome.Err, outcome.Deletes)
	}
	outcome = r.roll(t.Context(), "1.2.0", prices, force)
	if diff := cmp.Diff([]string{precondition.PendingDelete}, outcome.Forced); outcome.Err != nil || diff != "" ||
		len(outcome.Deletes) != 1 {
		t.Errorf("forced: %v, %+v\n%s", outcome.Err, outcome.Deletes, diff)
	}

	if held, err = maps.Get(t.Context(), "settings", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	held.Finalizers = nil
	if _, err := maps.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if outcome = r.roll(t.Context(), "1.3.0", prices); outcome.Err != nil || len(outcome.Deletes) != 0 {
		t.Errorf("after the object was deleted: error %v, deletes %+v", outcome.Err, outcome.Deletes)
	}
}

// A run knows the duration of the last run of its mode. A run without changes does not write
// the record again.
func TestEarlierDurationsAreKnown(t *testing.T) {
	r := newRelease(t)
	begins := func(earlier *record.Durations) func(*session.Options) {
		return func(options *session.Options) {
			options.Observer = observer{onBegin: func(o *session.Outcome) error {
				*earlier = o.Durations
				return nil
			}}
		}
	}
	var install, first, second, reconcile record.Durations
	r.roll(t.Context(), "1.0.0", settings, begins(&install))
	r.roll(t.Context(), "1.0.1", settings, begins(&first))
	r.roll(t.Context(), "1.0.2", prices, begins(&second))
	if install.All != 0 || first.All != 0 {
		t.Errorf("there was no run before: %v, %v", install, first)
	}
	if second.All <= 0 {
		t.Error("an update does not know how long the last one took")
	}

	maps := r.connect().Client.CoreV1().ConfigMaps(r.namespace)
	version := func() string {
		kept, err := maps.Get(t.Context(), "runlevel-release-"+r.namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return kept.ResourceVersion
	}
	r.roll(t.Context(), "1.0.2", prices, begins(&reconcile)) // this run may find more objects ready
	before := version()
	r.roll(t.Context(), "1.0.2", prices, begins(&reconcile))
	if before != version() || reconcile.All != 0 {
		t.Errorf("a reconcile without changes was recorded: %v", reconcile)
	}
}

// A restarted operator reads its release from the source in the record: the image, and not a folder from
// which a user has applied the same content meanwhile.
func TestTheCommandLineLeavesTheImageOfAnOperatorInTheRecord(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	from := func(source, own string) func(*session.Options) {
		return func(o *session.Options) { o.Source, o.Own = source, own }
	}
	r.must("1.0.0", both, from("registry.example/shop@sha256:1", "registry.example/shop@sha256:1"))
	for _, next := range []struct{ source, own, want string }{
		{"./shop", "", "registry.example/shop@sha256:1"},
		{"registry.example/shop@sha256:2", "registry.example/shop@sha256:1", "registry.example/shop@sha256:2"},
	} {
		r.must("1.0.0", both, from(next.source, next.own))
		if got := r.record().Newest().Source; got != next.want {
			t.Errorf("after an apply from %s, the record has %s, want %s", next.source, got, next.want)
		}
	}
}
