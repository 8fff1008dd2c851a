package live_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/pkg/graph"
)

const base = `
-- 0000_10_base_00.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: base, namespace: NS}}
`

// shop waits for a Deployment, whose pod is scheduled only when a test releases it.
const shop = base + `
-- 0000_20_web_00.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulingGates: [{name: example.com/later}]
      containers: [{name: web, image: registry.example/web}]
-- 0000_20_worker_00.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: worker, namespace: NS}}
-- 0000_30_last_00.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: last, namespace: NS}}
`

// phases returns the states of the manifests, by the components of their files.
func phases(r *live.Release) string {
	var all []string
	for i, phase := range r.Tasks {
		name := graph.ParseName(r.Graph.Tasks[i].File())
		all = append(all, name.Component+" "+string(phase))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func hasPhases(want string) func(*live.Release) bool {
	return func(r *live.Release) bool { return phases(r) == want }
}

// TestUpdateIsSeen checks that an open page sees an update from its beginning to its completion, and the time left by
// the durations of the last update.
func TestUpdateIsSeen(t *testing.T) {
	s := newSite(t)
	known := record.Record{Release: s.name}
	known.Remember("update", time.Hour, map[string]time.Duration{"level 20, web": time.Hour})
	known.Begin(record.HistoryEntry{Mode: "update", Version: "0.9.0"})
	known.Complete(metav1.Now())
	if err := record.NewStore(test.Client(t), s.name, s.name).Save(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	page := s.open()
	page.until("the last version", func(r *live.Release) bool { return r.Status.Version == "0.9.0" })
	wait := s.apply("1.0.0", shop)
	updating := page.until("the update waits for the pod",
		hasPhases("base done, last blocked, web waiting, worker done"))
	switch p := updating.Progress; {
	case p == nil || p.Total != 4 || p.Waiting != 1 || len(p.Waits) != 1:
		t.Errorf("the progress is %+v", p)
	case p.Left < 50*time.Minute || p.Left > time.Hour:
		t.Errorf("%s are left, want almost an hour", p.Left)
	}
	var states []live.Phase
	for _, node := range updating.Nodes {
		if node.Total > 0 {
			states = append(states, node.Phase)
		}
	}
	if want := []live.Phase{live.Done, live.Waits, live.Done, live.Blocked}; !slices.Equal(states, want) {
		t.Errorf("the nodes are %s, want %s", states, want)
	}
	s.schedule()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	complete := page.until("the update is complete", func(r *live.Release) bool {
		return r.Status.Done && phases(r) == "base done, last done, web done, worker done"
	})
	if complete.Progress != nil || complete.Status.Version != "1.0.0" {
		t.Errorf("version %s, progress %+v", complete.Status.Version, complete.Progress)
	}
}

// TestObjectsThatChangeAreSeen checks that an open page sees a refused object, a deleted one, and a new one of the same
// name.
func TestObjectsThatChangeAreSeen(t *testing.T) {
	s := newSite(t)
	page := s.open()
	wait := s.apply("1.0.0", base+`
-- 0000_20_bad_00.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: NOT-VALID, namespace: NS}}
`)
	if err := wait(); err == nil {
		t.Fatal("the object was not refused")
	}
	page.until("the object is refused", hasPhases("bad failed, base done"))
	s.must("1.0.1", base)
	page.until("the fixed version is complete", func(r *live.Release) bool { return r.Status.Done })
	s.delete("base")
	page.until("the object is missing", hasPhases("base failed"))
	s.must("1.0.1", base)
	page.until("the object is back", hasPhases("base done"))
	objects, err := s.release().Objects()
	if err != nil || len(objects.Objects) != 1 || objects.Objects[0].State != why.Ready {
		t.Errorf("objects %+v: %v", objects, err)
	}
}

// TestNewKindIsSeen checks that a page sees objects of a kind that the release defines.
func TestNewKindIsSeen(t *testing.T) {
	s := newSite(t)
	page := s.open()
	page.until("no release", func(r *live.Release) bool { return r.Record == nil })
	page.quiet(time.Second)
	s.must("1.0.0", base+`
-- 0000_20_crd_00.yaml --
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: seen.NS.example.com}
spec:
  group: NS.example.com
  scope: Namespaced
  names: {plural: seen, kind: Seen}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
-- 0000_30_cr_00.yaml --
{apiVersion: NS.example.com/v1, kind: Seen, metadata: {name: one, namespace: NS}}
`)
	page.until("all is done", func(r *live.Release) bool {
		return r.Status.Done && phases(r) == "base done, cr done, crd done"
	})
	page.quiet(time.Second)
	resource := schema.GroupVersionResource{Group: s.name + ".example.com", Version: "v1", Resource: "seen"}
	objects := test.Connect(t).Objects.Resource(resource).Namespace(s.name)
	if err := objects.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	page.until("the object is missing", hasPhases("base done, cr failed, crd done"))
}

// TestHeldDeleteIsSeen checks that a page shows a delete that a finalizer holds, until the object is deleted.
func TestHeldDeleteIsSeen(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base+`
-- 0000_20_old_00.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: NS, finalizers: [example.com/hold]}}
`)
	page := s.open()
	wait := s.apply("1.1.0", base+`
-- 0000_20_old_00.yaml --
apiVersion: v1
kind: ConfigMap
metadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: "true"}}
`)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	held := page.until("the delete is held", func(r *live.Release) bool { return len(r.Status.Deletes) == 1 })
	if phases(held) != "base done, old waiting" {
		t.Error(phases(held))
	}
	page.quiet(time.Second)
	s.patch("configmaps", "old", `{"metadata":{"finalizers":null}}`)
	page.until("the object is deleted", func(r *live.Release) bool {
		return len(r.Status.Deletes) == 0 && phases(r) == "base done, old done"
	})
}

// TestObjectsShowTheStateWithoutAReport checks the phases after an apply that did not wait, and during an uninstall.
func TestObjectsShowTheStateWithoutAReport(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base)
	noWait := func(options *session.Options) { options.Apply.NoWait = true }
	if err := s.apply("1.1.0", shop, noWait)(); err != nil {
		t.Fatal(err)
	}
	if release := s.release(); phases(release) != "base done, last done, web waiting, worker done" {
		t.Errorf("after an apply that did not wait: %s, %s", release.Status.State, phases(release))
	}
	store := record.NewStore(test.Client(t), s.name, s.name)
	known, _, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known.BeginUninstall(record.Uninstall{Since: metav1.Now(), ReportedAt: metav1.Now()})
	if err := store.Save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	s.delete("last")
	if release := s.release(); phases(release) != "base blocked, last done, web waiting, worker blocked" {
		t.Errorf("during an uninstall: %s", phases(release))
	}
}

// TestServerIsAwayAndBack checks that a page keeps the last state while the API server is away, and sees by itself that
// it is back.
func TestServerIsAwayAndBack(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base)
	page := s.open()
	page.until("complete", func(r *live.Release) bool { return r.Status.Done })
	if err := test.Sandbox(t).Kill(sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	away := page.until("the server is away", func(r *live.Release) bool { return r.Status.Unreachable != "" })
	if away.Status.Done || away.Status.Version != "1.0.0" || phases(away) != "base done" {
		t.Errorf("version %s, done %t, %s", away.Status.Version, away.Status.Done, phases(away))
	}
	if err := test.Sandbox(t).Resume(t.Context(), sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	page.until("the server is back", func(r *live.Release) bool { return r.Status.Done })
	page.quiet(2 * time.Second)
	s.delete("base")
	page.until("a change is seen", func(r *live.Release) bool { return r.Status.Missing == 1 })
}

// TestRefusedReadIsRepeated checks that a page that could not read something once gets it later, although nothing
// changes on the cluster.
func TestRefusedReadIsRepeated(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base)
	page := s.open()
	page.until("complete", func(r *live.Release) bool { return r.Status.Done })
	page.quiet(time.Second)
	watching := s.watching.Load()

	path := "/configmaps/" + lock.Name(s.name)
	s.refused.Store(&path)
	s.patch("configmaps", "base", `{"metadata":{"labels":{"example.com/changed":"once"}}}`)
	<-page.changes
	release, err := s.hub.Release(t.Context(), s.name, s.name)
	if err == nil {
		t.Errorf("the record could not be read, and the page shows %q", release.Status.Messages)
	}
	s.refused.Store(nil)
	<-page.changes
	page.until("complete again", func(r *live.Release) bool { return r.Status.Done })

	path = "/configmaps"
	s.refused.Store(&path)
	s.patch("configmaps", "base", `{"metadata":{"labels":{"example.com/changed":"twice"}}}`)
	page.until("something is unknown", func(r *live.Release) bool { return len(r.Status.Unknown) > 0 })
	s.refused.Store(nil)
	page.until("complete again", func(r *live.Release) bool { return r.Status.Done })
	if page.quiet(time.Second); s.watching.Load() != watching {
		t.Errorf("%d watches are open, and were %d", s.watching.Load(), watching)
	}
}

// TestForbiddenWatchesArePolled checks that a user who may neither list nor watch sees changes, too.
func TestForbiddenWatchesArePolled(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base)
	s.connect(test.Account(t, s.name, "viewer", rbacv1.PolicyRule{
		APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"},
		Verbs: []string{"get"},
	}))
	page := s.open()
	page.until("the release", func(r *live.Release) bool { return r.Status.Version == "1.0.0" })
	page.quiet(time.Second)
	if watching := s.watching.Load(); watching > 0 {
		t.Fatalf("%d watches, want none", watching)
	}
	s.must("1.1.0", base)
	page.until("the update", func(r *live.Release) bool { return r.Status.Version == "1.1.0" })
}

// TestPagesShareReads checks that pages that open at the same time share a read, and that nothing is read at rest, even
// if the lock is renewed.
func TestPagesShareReads(t *testing.T) {
	s := newSite(t)
	s.apply("1.0.0", base, func(options *session.Options) {
		options.Lock.Keeps, options.Lock.Duration, options.Keep = true, 3*time.Second, &keep.Options{}
	})
	pages := []*viewer{s.open(), s.open(), s.open()}
	pages[0].until("complete", func(r *live.Release) bool { return r.Status.Done && r.Status.Lock.Watching })
	settle := func() {
		pages[0].quiet(2 * time.Second)
		for _, page := range pages {
			page.quiet(time.Millisecond)
		}
	}
	settle()
	before := s.records.Load()
	s.patch("configmaps", "base", `{"metadata":{"labels":{"example.com/changed":"yes"}}}`)
	var reading sync.WaitGroup
	for _, page := range pages {
		reading.Go(func() {
			<-page.changes
			page.release()
		})
	}
	reading.Wait()
	if reads := s.records.Load() - before; reads != 1 {
		t.Errorf("three pages have read the record %d times, want once", reads)
	}
	settle()
	requests := s.requests.Load()
	s.renewals(3)
	select {
	case <-pages[1].changes:
		t.Error("a renewal of the lock was reported as a change")
	default:
	}
	if more := s.requests.Load() - requests; more > 0 {
		t.Errorf("%d requests at rest", more)
	}
}

// TestDeadApplyIsSeen checks that a page sees that the process that applied the release has died.
func TestDeadApplyIsSeen(t *testing.T) {
	s := newSite(t)
	page := s.open()
	var isDead atomic.Bool
	s.applyAs(sandboxtest.Before(test.Sandbox(t).Config, func(*http.Request) error {
		if isDead.Load() {
			return errNetwork
		}
		return nil
	}), "1.0.0", shop, func(options *session.Options) { options.Lock.Duration = time.Second })
	page.until("an apply", func(r *live.Release) bool { return r.Progress != nil && !r.Status.Lock.Expired })
	isDead.Store(true)
	dead := page.until("its lock has expired", func(r *live.Release) bool { return r.Status.Lock.Expired })
	if dead.Progress == nil || dead.Progress.Left != 0 {
		t.Errorf("the progress of a dead apply is %+v", dead.Progress)
	}
}

// TestWatchesEnd checks that all watches end with the last page.
func TestWatchesEnd(t *testing.T) {
	s := newSite(t)
	s.must("1.0.0", base)
	first, second := s.open(), s.open()
	first.until("complete", func(r *live.Release) bool { return r.Status.Done })
	second.quiet(time.Second)
	first.stop()
	if s.watching.Load() == 0 {
		t.Error("no watches for the second page")
	}
	second.stop()
	sandboxtest.Eventually(t, "all watches end", func(context.Context) bool { return s.watching.Load() == 0 })
}

// TestReleasesAreSeen checks that the list of releases sees a new one and its problems.
func TestReleasesAreSeen(t *testing.T) {
	s := newSite(t)
	changes := s.hub.Changes(t.Context(), live.Topic{Kind: live.OfReleases})
	until := func(want string) {
		t.Helper()
		deadline := time.After(patience)
		for {
			releases, err := s.hub.Releases(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, release := range releases {
				if release.Release == s.name {
					got += release.Version + " " + string(release.State)
				}
			}
			if got == want {
				return
			}
			select {
			case <-changes:
			case <-deadline:
				t.Fatalf("releases %q, want %q", got, want)
			}
		}
	}
	until("")
	s.must("1.0.0", base)
	until("1.0.0 Complete")
	s.delete("base")
	until("1.0.0 Degraded")
}
