package session_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Versions of a release: one with two objects, and ones in which they are to go.
const (
	both = `
-- 0000_10_c_a.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS}, data: {colour: red}}
-- 0000_20_c_b.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS}, data: {colour: red}}
`
	neither = `
-- 0000_10_c_a.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
-- 0000_20_c_b.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
`
	another = `
-- 0000_30_c_c.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: NS}, data: {colour: red}}
`
)

// hold gives an object a finalizer, or takes it off.
func (r release) hold(name string, isHeld bool) types.UID {
	r.Helper()
	patch := map[bool]string{
		true:  `{"metadata":{"finalizers":["example.com/hold"]}}`,
		false: `{"metadata":{"finalizers":null}}`,
	}[isHeld]
	config, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Patch(context.WithoutCancel(r.Context()), name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		r.Error(err)
		return ""
	}
	return config.UID
}

// bring creates an object that no release has.
func (r release) bring(name string) {
	r.Helper()
	if _, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Create(r.Context(), configMap(name),
		metav1.CreateOptions{FieldManager: "bob"}); err != nil {
		r.Fatal(err)
	}
}

func (r release) exists(name string) bool {
	r.Helper()
	_, err := test.Client(r).CoreV1().ConfigMaps(r.namespace).Get(r.Context(), name, metav1.GetOptions{})
	return err == nil
}

func TestTheRecordHasAllDeletesBeforeTheFirst(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	var mu sync.Mutex
	var deletes int
	outcome := r.through(func(request *http.Request) error {
		if request.Method != http.MethodDelete || !strings.Contains(request.URL.Path, "configmaps") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		deletes++
		known := r.record().Tombstones
		if deletes == 1 && (len(known) != 2 || known[0].UID == "" || known[1].UID == "" ||
			known[0].Version != "1.0.1") {
			t.Errorf("during the first delete, the record has tombstones %+v, want two with UIDs", known)
		}
		return nil
	}).must("1.0.1", neither)
	if deletes != 2 || done(outcome) != "deleted a, deleted b" {
		t.Errorf("%d deletes: %s", deletes, done(outcome))
	}
	if known := r.record(); len(known.Tombstones) != 0 || len(outcome.Deletes) != 0 {
		t.Errorf("got tombstones %+v after both objects were deleted, want none", known.Tombstones)
	}
	if got := r.events("b"); !slices.Equal(got, []string{"DeleteRequested", "Deleted"}) {
		t.Errorf("got events %q", got)
	}
	if outcome := r.must("1.0.1", neither); outcome.Mode != graph.Reconcile || done(outcome) != "absent a, absent b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
}

func TestADeleteOutlivesItsVersion(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	uid := r.hold("b", true)
	if outcome := r.must("1.0.1", neither); len(outcome.Deletes) != 1 ||
		outcome.Deletes[0].Seen.State != tombstone.Terminating {
		t.Errorf("%+v", outcome.Deletes)
	}
	if outcome := r.must("1.0.1", neither); outcome.Mode != graph.Reconcile || done(outcome) != "absent a, pending b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
	outcome := r.must("1.0.2", another) // a patch, without the tombstone
	if known := r.record().Tombstones; len(known) != 1 || known[0].UID != uid || known[0].Version != "1.0.1" ||
		len(outcome.Deletes) != 1 {
		t.Errorf("the record has %+v", known)
	}
	if outcome := r.roll(t.Context(), "1.1.0", another); outcome.Report != nil ||
		!strings.Contains(outcome.Err.Error(), "example.com/hold") {
		t.Errorf("a minor version should not begin: %v", outcome.Err)
	}
	r.hold("b", false)
	if outcome := r.must("1.1.0", another); len(outcome.Deletes) != 0 || len(r.record().Tombstones) != 0 {
		t.Errorf("got deletes %+v after the object was deleted, want none", outcome.Deletes)
	}
	if got := r.events("b"); !slices.Equal(got, []string{"DeleteRequested", "Deleted", "StillTerminating"}) {
		t.Errorf("got events %q", got)
	}
}

func TestAKilledUpdateRequestsItsDeletesAgain(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.through(func(request *http.Request) error {
		if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/b") {
			cancel(lock.ErrLost) // then the run writes nothing more, as after a kill
			return errors.New("killed")
		}
		return nil
	}).roll(ctx, "1.0.1", neither)
	if !r.exists("b") || len(r.record().Tombstones) == 0 {
		t.Fatalf("the record has %+v", r.record())
	}
	if outcome := r.must("1.0.1", neither); outcome.Mode != graph.Update ||
		!strings.HasSuffix(done(outcome), "deleted b") || r.exists("b") {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
}

func TestAnUpdateThatCouldNotReadAnObjectDeletesItLater(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	ctx, cancel := context.WithCancel(t.Context())
	outcome := r.through(func(request *http.Request) error {
		if request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/configmaps/b") {
			return errors.New("no route to host")
		}
		return nil
	}).roll(ctx, "1.0.1", neither, func(o *session.Options) {
		o.Apply.OnEvent = func(e apply.Event) {
			if e.Type == apply.Retrying {
				cancel()
			}
		}
	})
	if !errors.Is(outcome.Err, context.Canceled) || done(outcome) != "deleted a, failed b" ||
		outcome.Deletes[0].Seen.State != tombstone.Unknown {
		t.Errorf("%s, %+v: %v", done(outcome), outcome.Deletes, outcome.Err)
	}
	if newest := r.record().Newest(); newest.State == record.Completed {
		t.Error("the update is complete, although it has not deleted b")
	}
	if outcome := r.must("1.0.1", neither); outcome.Mode != graph.Update || done(outcome) != "absent a, deleted b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
}

func TestARecreatedObjectIsDeletedAgain(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	r.hold("b", true)
	r.must("1.0.1", neither)
	r.hold("b", false) // b is deleted, and created again before the next run
	r.bring("a")
	r.bring("b")
	if outcome := r.must("1.0.1", neither); done(outcome) != "reappeared a, reappeared b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
	outcome := r.must("1.1.0", neither) // not blocked by the new objects
	if done(outcome) != "deleted a, deleted b" || len(r.record().Tombstones) != 0 {
		t.Errorf("%s, %+v", done(outcome), r.record().Tombstones)
	}
	for _, name := range []string{"a", "b"} {
		if got := r.events(name); strings.Count(strings.Join(got, " "), "Reappeared") != 2 ||
			!strings.Contains(strings.Join(got, " "), "DeleteRequested DeleteRequested") {
			t.Errorf("got events %q of ConfigMap %s", got, name)
		}
	}
}

func TestAnObjectThatReturnsToTheReleaseIsNotPending(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	r.hold("b", true)
	r.must("1.0.1", neither)
	r.hold("b", false)
	r.bring("b")
	if outcome := r.must("1.0.2", both); done(outcome) != "created a, configured b" || len(outcome.Deletes) != 0 ||
		len(r.record().Tombstones) != 0 {
		t.Errorf("%s, %+v", done(outcome), r.record().Tombstones)
	}
}

func TestAnotherReleasesObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	other := r
	other.name += "-other"
	r.must("1.0.0", both)
	if outcome := other.must("1.0.0", another); len(outcome.Orphans) != 0 {
		t.Errorf("got objects of another release as orphans: %+v", outcome.Orphans)
	}
	if outcome := r.must("1.0.1", both+strings.ReplaceAll(another, "name: c", "name: d")); len(outcome.Orphans) != 0 {
		t.Errorf("got objects of another release as orphans: %+v", outcome.Orphans)
	}
	for name, claim := range map[string]string{"applies": both, "deletes": neither} {
		if outcome := other.roll(t.Context(), "1.0.1", claim); outcome.Report != nil ||
			!strings.Contains(outcome.Err.Error(), "are of release "+r.name) {
			t.Errorf("a version that %s objects of another release begins: %v", name, outcome.Err)
		}
		outcome := other.roll(t.Context(), "1.0.1", claim, force)
		if done(outcome) != "failed a, not done b" ||
			!strings.Contains(outcome.Err.Error(), "owned by release "+r.name) {
			t.Errorf("a forced version that %s objects of another release: got %s, error %v", name, done(outcome),
				outcome.Err)
		}
	}
	if known := other.record().Tombstones; len(known) != 0 || !r.exists("a") || !r.exists("b") {
		t.Errorf("got tombstones %+v after refused deletes, want none", known)
	}
}

func TestAnOlderVersionHasToBeForced(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.2.0", both)
	if outcome := r.roll(t.Context(), "1.1.0", both); outcome.Report != nil || outcome.Err == nil {
		t.Errorf("an older version begins: %v", outcome.Err)
	}
	r.must("1.1.0", both, force)
	if newest := r.record().Newest(); newest.Version != "1.1.0" || len(newest.Forced) == 0 {
		t.Errorf("the record has %+v", newest)
	}
}

func TestAnInstallLeavesWhatTheNextApplyDeletes(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.bring("a")
	if outcome := r.must("1.0.0", neither); outcome.Mode != graph.Install || done(outcome) != "left a, absent b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
	if outcome := r.must("1.0.0", neither); outcome.Mode != graph.Reconcile || done(outcome) != "deleted a, absent b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
	if got := r.events("a"); !slices.Equal(got, []string{"DeleteRequested", "Deleted"}) {
		t.Errorf("the events are %q", got)
	}
	r.bring("a") // a controller that owns it may recreate it
	if outcome := r.must("1.0.0", neither); outcome.Mode != graph.Reconcile || done(outcome) != "left a, absent b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
	if outcome := r.must("1.0.1", neither); done(outcome) != "deleted a, absent b" {
		t.Errorf("%s: %s", outcome.Mode, done(outcome))
	}
}

// An update is killed before its delete, and a user goes back. The objects of the version that the user
// applies must no longer be deleted, and must not block later versions.
func TestGoingBackWithdrawsADelete(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.through(func(request *http.Request) error {
		if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/b") {
			cancel(lock.ErrLost)
			return errors.New("killed")
		}
		return nil
	}).roll(ctx, "1.1.0", neither)
	r.must("1.1.1", both)
	if requested := r.record().Tombstones; len(requested) > 0 {
		t.Errorf("got tombstones %+v after the rollback, want none", requested)
	}
	if got := r.events("b"); len(got) > 0 {
		t.Errorf("got events %q of an object that was never deleted", got)
	}
	r.must("1.2.0", both)
}
