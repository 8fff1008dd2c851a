package apply_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// tombstoneFile is the tombstone of a ConfigMap.
const tombstoneFile = `
-- 0000_50_old_config.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: "true"}}}
`

// A tombstoned object is a ConfigMap for which a release has a tombstone, with the record of the release.
type tombstoned struct {
	*testing.T
	namespace string // namespace and name of the release
	release   *payload.Payload
}

func newTombstoned(t *testing.T) tombstoned {
	namespace := test.Namespace(t)
	return tombstoned{t, namespace, load(t, namespace, namespace, tombstoneFile)}
}

// bring creates the ConfigMap.
func (t tombstoned) bring(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Data: map[string]string{"colour": "red"}}
	if change != nil {
		change(config)
	}
	made, err := test.Client(t).CoreV1().ConfigMaps(t.namespace).Create(t.Context(), config,
		metav1.CreateOptions{FieldManager: cmp.Or(config.Annotations["by"], "bob")})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// held adds a finalizer to the ConfigMap, and removes it after the test.
func (t tombstoned) held(config *corev1.ConfigMap) {
	config.Finalizers = []string{"example.com/hold"}
	t.Cleanup(func() {
		_, _ = test.Client(t).CoreV1().ConfigMaps(t.namespace).Patch(context.Background(), "old", types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
}

func (t tombstoned) remove() {
	t.Helper()
	if err := test.Client(t).CoreV1().ConfigMaps(t.namespace).Delete(t.Context(), "old",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remember writes the release's record.
func (t tombstoned) remember(change func(*record.Record)) {
	t.Helper()
	store := record.NewStore(test.Client(t), "default", t.namespace)
	known, _, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	change(known)
	if err := store.Save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
}

// asked notes in the record that the delete was requested.
func (t tombstoned) asked(uid types.UID) {
	t.Helper()
	t.remember(func(r *record.Record) {
		r.RequestDelete(record.Tombstone{
			ID:          t.release.Manifests[0].ID(),
			UID:         uid,
			Version:     "1.0.0",
			RequestedAt: metav1.Now(),
		})
	})
}

// sent notes in the record that the delete request for an object was sent.
func (t tombstoned) sent(uid types.UID) {
	t.Helper()
	t.asked(uid)
	t.remember(func(r *record.Record) { r.MarkSent(t.release.Manifests[0].ID(), uid) })
}

// applied notes that a version with the tombstone was applied.
func (t tombstoned) applied(mode graph.Mode) {
	t.Helper()
	t.remember(func(r *record.Record) {
		r.Begin(record.HistoryEntry{
			Version:    "1.0.0",
			Mode:       string(mode),
			Tombstones: []kinds.ID{t.release.Manifests[0].ID()},
		})
		r.Complete(metav1.Now())
	})
}

// eventsOn returns the events about an object, in their order.
func eventsOn(t *testing.T, namespace, kind, name string) []string {
	t.Helper()
	list, err := test.Client(t).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: fields.Set{
			"involvedObject.kind": kind,
			"involvedObject.name": name,
			"source":              "runlevel",
		}.String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		return cmp.Compare(number(a.ResourceVersion), number(b.ResourceVersion))
	})
	var events []string
	for _, event := range list.Items {
		if event.InvolvedObject.UID == "" || event.InvolvedObject.APIVersion == "" {
			t.Errorf("the event does not name its object: %+v", event.InvolvedObject)
		}
		events = append(events, timeless(fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message)))
	}
	return events
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|terminating for \d+s`)

// timeless replaces the times in a text.
func timeless(text string) string { return times.ReplaceAllString(text, "TIME") }

// A stand is the state of a tombstone and its object before a run.
type stand struct {
	prepare func(tombstoned)
	// By mode: the action and the message, then the events, and at the end the state in the record: "asked" or
	// nothing.
	want map[graph.Mode]string
}

const (
	requested = "\nNormal DeleteRequested: the release deletes it"
	confirmed = "\nNormal Deleted: the object is deleted"
	back      = "\nWarning Reappeared: it was deleted, and created again by bob at TIME"
	isBack    = "reappeared: it was deleted, and created again by bob at TIME: the next update deletes it again"
	holding   = "TIME, held by finalizer example.com/hold"
	missed    = "pending: its delete was requested and did not arrive: the next update requests it again\nasked"
)

// notYet has the story of an object whose delete an update has noted and not requested.
var notYet = map[graph.Mode]string{
	graph.Install:   "left: an install deletes nothing: the next apply will\nasked",
	graph.Reconcile: "left: a reconcile deletes nothing: the next update will\nasked",
}

var stands = map[string]stand{
	"it never existed": {func(tombstoned) {},
		map[graph.Mode]string{graph.Install: "absent", graph.Update: "absent", graph.Reconcile: "absent"}},
	"it exists, and its delete was not requested": {func(g tombstoned) { g.bring(nil) }, map[graph.Mode]string{
		graph.Install: "left: an install deletes nothing: the next apply will", graph.Update: "deleted" + requested +
			confirmed, graph.Reconcile: "left: a reconcile deletes nothing: the next update will",
	}},
	"it was left by an install": {func(g tombstoned) { g.applied(graph.Install); g.bring(nil) }, map[graph.Mode]string{
		graph.Update:    "deleted" + requested + confirmed,
		graph.Reconcile: "left: a reconcile deletes nothing: the next update will",
	}},
	"its delete was requested, and it was deleted since": {func(g tombstoned) {
		g.asked(g.bring(nil).UID)
		g.remove()
	}, map[graph.Mode]string{
		graph.Install:   "deleted" + confirmed,
		graph.Update:    "deleted" + confirmed,
		graph.Reconcile: "deleted" + confirmed,
	}},
	"its delete was requested, and the request was lost": {func(g tombstoned) {
		g.sent(g.bring(nil).UID)
	}, map[graph.Mode]string{
		graph.Install: missed, graph.Update: "deleted" + requested + confirmed, graph.Reconcile: missed,
	}},
	"its delete was noted, and not requested": {func(g tombstoned) { g.asked(g.bring(nil).UID) }, map[graph.Mode]string{
		graph.Install: notYet[graph.Install], graph.Update: "deleted" + requested + confirmed,
		graph.Reconcile: notYet[graph.Reconcile],
	}},
	"its delete was noted before the object was read": {func(g tombstoned) {
		g.asked("")
		g.bring(nil)
	}, map[graph.Mode]string{
		graph.Install: notYet[graph.Install], graph.Update: "deleted" + requested + confirmed,
		graph.Reconcile: notYet[graph.Reconcile],
	}},
	"it is held": {func(g tombstoned) {
		g.bring(g.held)
	}, map[graph.Mode]string{graph.Update: "pending: " + holding + requested + "\nasked"}},
	"it is terminating": {func(g tombstoned) {
		g.asked(g.bring(g.held).UID)
		g.remove()
	}, map[graph.Mode]string{
		graph.Install:   "pending: " + holding + "\nWarning StillTerminating: " + holding + "\nasked",
		graph.Update:    "pending: " + holding + "\nWarning StillTerminating: " + holding + "\nasked",
		graph.Reconcile: "pending: " + holding + "\nWarning StillTerminating: " + holding + "\nasked",
	}},
	"another client deletes it": {func(g tombstoned) {
		g.bring(g.held)
		g.remove()
	}, map[graph.Mode]string{
		graph.Update:    "pending: " + holding + "\nWarning StillTerminating: " + holding + "\nasked",
		graph.Reconcile: "pending: " + holding + "\nWarning StillTerminating: " + holding,
	}},
	"another one has its name": {func(g tombstoned) {
		g.asked(g.bring(nil).UID)
		g.remove()
		g.bring(nil)
	}, map[graph.Mode]string{
		graph.Install:   isBack + back + "\nasked",
		graph.Update:    "deleted" + back + requested + confirmed,
		graph.Reconcile: isBack + back + "\nasked",
	}},
	"the version before has seen its delete": {func(g tombstoned) {
		g.applied(graph.Update)
		g.bring(nil)
	}, map[graph.Mode]string{
		graph.Update: "deleted" + back + requested + confirmed, graph.Reconcile: isBack + back,
	}},
	"another release owns it": {func(g tombstoned) {
		g.bring(func(config *corev1.ConfigMap) {
			config.Labels, config.Annotations = map[string]string{objectmeta.ReleaseLabel: "other"},
				map[string]string{"by": "runlevel"}
		})
	}, map[graph.Mode]string{graph.Update: refused, graph.Reconcile: refused}},
	"it has only the label of another release": {func(g tombstoned) {
		g.bring(func(config *corev1.ConfigMap) { config.Labels = map[string]string{objectmeta.ReleaseLabel: "other"} })
	}, map[graph.Mode]string{graph.Update: "deleted" + requested + confirmed}},
}

const refused = "failed: UpdatePayloadResourceConflict: owned by release other, and only that release may delete it"

func TestEveryStateOfATombstoneInEveryMode(t *testing.T) {
	for name, stands := range stands {
		for mode, want := range stands.want {
			t.Run(fmt.Sprintf("%s, %s", name, mode), func(t *testing.T) {
				t.Parallel()
				g := newTombstoned(t)
				stands.prepare(g)
				did := run(t, t.Context(), g.release, apply.Options{Options: inMode(mode)})
				if diff := gocmp.Diff(want, g.story(did)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// story returns the outcome of the tombstone.
func (t tombstoned) story(did applied) string {
	t.Helper()
	change := did.Changes[0]
	message := change.Message
	if change.Err != nil {
		message = change.Err.Reason + ": " + change.Err.Err.Error()
	}
	lines := []string{strings.TrimSuffix(fmt.Sprintf("%s: %s", change.Action, timeless(message)), ": ")}
	lines = append(lines, eventsOn(t.T, t.namespace, "ConfigMap", "old")...)
	known, _, err := record.NewStore(test.Client(t), "default", t.namespace).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range known.Tombstones {
		lines = append(lines, "asked")
	}
	return strings.Join(lines, "\n")
}

func TestDeleteIsRecordedBeforeItIsRequested(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	uid := g.bring(nil).UID
	var deletes atomic.Int32
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method != http.MethodDelete {
			return nil
		}
		deletes.Add(1)
		known, _, err := record.NewStore(test.Client(t), "default", g.namespace).Load(t.Context())
		if err != nil || len(known.Tombstones) != 1 || known.Tombstones[0].UID != uid ||
			known.Tombstones[0].ID != g.release.Manifests[0].ID() {
			t.Errorf("during the delete request: got record %+v, error %v; want a delete of %s with UID %s", known, err,
				g.release.Manifests[0].ID(), uid)
		}
		return nil
	})
	if did := runOn(t, t.Context(), c, g.release, apply.Options{Options: updateMode}); did.Err != nil ||
		deletes.Load() != 1 {
		t.Errorf("%d deletes: %v", deletes.Load(), did.Err)
	}
}

// If one request for an object has no answer, gets a server error, or comes while its kind is not served, the object
// does not count as deleted: an update that has to delete it looks again. So does the apply that deletes the objects
// that an install has left.
func TestUnreadableObjectDoesNotCountAsDeleted(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]*apierrors.StatusError{
		"no answer": nil, "an error": apierrors.NewInternalError(errors.New("etcd is away")),
		"a timeout":         apierrors.NewTimeoutError("it took too long", 0),
		"too many requests": apierrors.NewTooManyRequests("later", 0),
	} {
		for _, mode := range []graph.Mode{graph.Update, graph.Reconcile} {
			t.Run(fmt.Sprintf("%s, %s", name, mode), func(t *testing.T) {
				t.Parallel()
				g := newTombstoned(t)
				g.bring(nil)
				run(t, t.Context(), g.release, apply.Options{Options: installMode})
				var reads atomic.Int32
				c := connectBy(t, func(r *http.Request, send http.RoundTripper) (*http.Response, error) {
					switch {
					case r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/configmaps/old") ||
						reads.Add(1) > 1:
						return send.RoundTrip(r)
					case failure == nil:
						return nil, syscall.ECONNREFUSED
					default:
						return answered(r, failure), nil
					}
				})
				if diff := gocmp.Diff("deleted"+requested+confirmed,
					g.story(runOn(t, t.Context(), c, g.release, apply.Options{Options: inMode(mode)}))); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// If an update may not read the object of a tombstone, it fails, and deletes nothing.
func TestObjectThatMayNotBeReadFailsTheUpdate(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	uid := g.bring(nil).UID
	c := connectBy(t, func(r *http.Request, send http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps/old") {
			return answered(r, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "old",
				errors.New("no role allows it"))), nil
		}
		return send.RoundTrip(r)
	})
	did := runOn(t, t.Context(), c, g.release, apply.Options{Options: updateMode})
	if did.Err == nil || did.Changes[0].Err == nil || did.Changes[0].Err.Reason != object.ResourceForbidden ||
		len(did.record.Tombstones) != 1 {
		t.Errorf("got change %+v, error %v, recorded deletes %+v; want reason %s, and one delete", did.Changes[0],
			did.Err, did.record.Tombstones, object.ResourceForbidden)
	}
	g.wants(uid)
}

func TestNothingIsDeletedWithoutARecord(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	uid := g.bring(nil).UID
	ctx, cancel := context.WithCancel(t.Context())
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/namespaces/default/configmaps") {
			cancel()
			return errors.New("no record today")
		}
		return nil
	})
	if did := runOn(t, ctx, c, g.release, apply.Options{Options: updateMode}); did.Changes[0].Action != object.Failed {
		t.Errorf("got change %+v, want action %s", did.Changes[0], object.Failed)
	}
	g.wants(uid)
}

// wants fails the test if the ConfigMap does not have a UID.
func (t tombstoned) wants(uid types.UID) {
	t.Helper()
	config, err := test.Client(t).CoreV1().ConfigMaps(t.namespace).Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil || config.UID != uid || config.DeletionTimestamp != nil {
		t.Errorf("the ConfigMap has changed: %v, %v", config, err)
	}
}

func TestUpdateKilledBeforeItsDeleteContinues(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	uid := g.bring(nil).UID
	ctx, cancel := context.WithCancel(t.Context())
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method == http.MethodDelete {
			cancel()
			return errors.New("killed")
		}
		return nil
	})
	runOn(t, ctx, c, g.release, apply.Options{Options: updateMode})
	g.wants(uid)
	if diff := gocmp.Diff(missed,
		g.story(run(t, t.Context(), g.release, apply.Options{Options: reconcileMode}))); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff("deleted"+requested+confirmed,
		g.story(run(t, t.Context(), g.release, apply.Options{Options: updateMode}))); diff != "" {
		t.Error(diff)
	}
}

// An install deletes nothing. The apply after it deletes the objects that the install has found, and no object that was
// created since.
func TestNextApplyDeletesObjectsThatAnInstallHasLeft(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		between func(tombstoned)
		want    string
	}{
		"it exists": {func(tombstoned) {}, "deleted" + requested + confirmed},
		"another one was created": {func(g tombstoned) {
			g.remove()
			g.bring(nil)
		}, "left: a reconcile deletes nothing: the next update will"},
		"after a preview": {func(g tombstoned) {
			preview(g, g.Context(), test.Sandbox(g).Config, g.release, apply.Options{Options: reconcileMode})
		}, "deleted" + requested + confirmed},
		"it is being deleted": {func(g tombstoned) { g.remove() }, "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newTombstoned(t)
			uid := g.bring(nil).UID
			run(t, t.Context(), g.release, apply.Options{Options: installMode})
			g.wants(uid)
			row.between(g)
			if diff := gocmp.Diff(row.want,
				g.story(run(t, t.Context(), g.release, apply.Options{Options: reconcileMode}))); diff != "" {
				t.Error(diff)
			}
			if !strings.HasPrefix(row.want, "left") {
				g.bring(nil)
			}
			if got := g.story(run(t, t.Context(), g.release, apply.Options{Options: reconcileMode})); !strings.Contains(
				got, "the next update",
			) {
				t.Error("of the object that was created since:", got)
			}
		})
	}
}

func TestDeleteSparesARecreatedObject(t *testing.T) {
	t.Parallel()
	g := newTombstoned(t)
	g.bring(nil)
	var another types.UID
	c := connectThrough(t, func(request *http.Request) error {
		if request.Method == http.MethodDelete {
			g.remove()
			another = g.bring(nil).UID
		}
		return nil
	})
	did := runOn(t, t.Context(), c, g.release, apply.Options{Options: updateMode})
	if diff := gocmp.Diff(isBack+back+"\nasked", g.story(did)); diff != "" {
		t.Error(diff)
	}
	g.wants(another)
	if diff := gocmp.Diff("deleted"+back+back+requested+confirmed,
		g.story(run(t, t.Context(), g.release, apply.Options{Options: updateMode}))); diff != "" {
		t.Error(diff)
	}
}

// If another release creates an object while the update is at earlier levels, the update does not delete it.
func TestObjectThatAnotherReleaseCreatesMeanwhileIsNotDeleted(t *testing.T) {
	t.Parallel()
	namespace := test.Namespace(t)
	file := "-- 0000_10_NAME_10.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME, namespace: NS}}\n"
	other := load(t, "other-"+namespace, namespace, strings.ReplaceAll(file, "NAME", "old"))
	release := load(t, namespace, namespace, strings.ReplaceAll(file, "NAME", "first")+tombstoneFile)
	var once sync.Once
	c := connectThrough(t, func(r *http.Request) error {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/first") {
			once.Do(func() { must(t, run(t, t.Context(), other, apply.Options{Options: installMode}).Err) })
		}
		return nil
	})
	did := runOn(t, t.Context(), c, release, apply.Options{Options: updateMode})
	if did.Err == nil || !strings.Contains(did.Err.Error(), "owned by release other-"+namespace) {
		t.Errorf("got error %v for the tombstone of another release's object", did.Err)
	}
	if _, err := test.Client(t).CoreV1().ConfigMaps(namespace).Get(t.Context(), "old",
		metav1.GetOptions{}); err != nil {
		t.Error("the other release's object:", err)
	}
}
