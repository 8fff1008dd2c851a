package keep_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// test is the control plane that the tests of this package share. Its audit log has every
// request of those who test.
var test = sandboxtest.New(sandbox.Options{AuditPolicy: `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:masters, system:serviceaccounts]
- level: None
`})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// patience is far longer than any expected event takes.
const patience = 5 * time.Minute

// A site is a release that a test keeps in place, in its own namespace, whose name it has.
type site struct {
	t        *testing.T
	name     string
	release  *payload.Payload
	admin    *cluster.Cluster // client whose requests are neither counted nor hindered
	keeping  *wire
	stop     func() error // waits until the Keeper has stopped
	problems func() []keep.Event

	mu     sync.Mutex
	events []keep.Event
}

// A plan configures a site.
type plan struct {
	config  *rest.Config // connection of the Keeper
	sandbox *sandbox.Sandbox
	apply   apply.Options
	keep    keep.Options
	keeping *wire
}

// keepIn applies a payload of files in txtar, in which NS stands for the namespace and the release, and keeps it in
// place until the test ends. It returns when all objects were checked.
func keepIn(t *testing.T, files string, change ...func(*plan)) *site {
	t.Helper()
	return keepAs(t, test.Namespace(t), files, change...)
}

// keepAs is like keepIn, with a given name.
func keepAs(t *testing.T, name, files string, change ...func(*plan)) *site {
	t.Helper()
	p := &plan{keeping: &wire{}, keep: keep.Options{Every: -1}}
	for _, fn := range change {
		fn(p)
	}
	if p.sandbox == nil {
		p.sandbox = test.Sandbox(t)
	}
	if p.config == nil {
		p.config = p.sandbox.Config
	}
	s := &site{t: t, name: name, keeping: p.keeping, admin: connect(t, p.sandbox.Config, nil)}
	s.release = load(t, name, files)
	report, options := s.apply(p.apply)
	s.keep(connect(t, p.config, p.keeping), report, options, p.keep)
	if p.keep.Every < 0 {
		s.quiet()
	}
	return s
}

// connect makes a connection, over a wire if there is one.
func connect(t *testing.T, config *rest.Config, over *wire) *cluster.Cluster {
	t.Helper()
	config = rest.CopyConfig(config)
	config.UserAgent = "keeper"
	if over != nil {
		config = sandboxtest.Tap(config, over.tap)
	}
	return sandboxtest.Connect(t, config)
}

// load reads a payload.
func load(t *testing.T, name, files string) *payload.Payload {
	t.Helper()
	return sandboxtest.LoadRelease(t, name, files, payload.Options{Name: name})
}

// apply applies the release.
func (s *site) apply(options apply.Options) (*apply.Report, apply.Options) {
	s.t.Helper()
	store := record.NewStore(s.admin.Client, "default", s.name)
	known, _, err := store.Load(s.t.Context())
	s.must(err)
	before, err := inventory.Take(s.t.Context(), s.admin, nil, nil)
	s.must(err)
	if options.Timeout == 0 {
		options.Timeout = patience
	}
	options.Release, options.Journal = s.name, object.NewJournal(store, known)
	report := apply.Run(s.t.Context(), s.admin, s.release, before, options)
	s.must(report.Err)
	return report, options
}

// keep keeps the release in place, and returns when that has begun.
func (s *site) keep(c *cluster.Cluster, applied *apply.Report, asApplied apply.Options, options keep.Options) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	onEvent := options.OnEvent
	options.Apply, options.OnEvent = asApplied.Options, func(event keep.Event) {
		s.mu.Lock()
		s.events = append(s.events, event)
		s.mu.Unlock()
		if onEvent != nil {
			onEvent(event)
		}
	}
	options.Apply.Fingerprints = applied.Fingerprints
	keeper := keep.Start(ctx, c, s.release, options)
	s.problems = keeper.Problems
	for _, change := range applied.Changes {
		keeper.Take(change)
	}
	keeper.Announce()
	go func() { ended <- keeper.Wait() }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	s.t.Cleanup(func() {
		if err := s.stop(); !errors.Is(err, context.Canceled) {
			s.t.Errorf("keeping ended with %v", err)
		}
		if s.t.Failed() {
			s.t.Logf("reported: %s", strings.Join(s.lines(), "\n      "))
		}
	})
	s.until("the event Keeping is reported", func() bool { return len(s.all(keep.Keeping)) == 1 })
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// until waits until isSo returns true.
func (s *site) until(what string, isSo func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			return isSo(), nil
		})
	if err != nil {
		s.t.Fatalf("never: %s", what)
	}
}

// all returns the events of a type that were reported until now.
func (s *site) all(wanted keep.EventType) []keep.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.events), func(event keep.Event) bool { return event.Type != wanted })
}

// of are the events of a type about an object.
func (s *site) of(wanted keep.EventType, kind, name string) []keep.Event {
	return slices.DeleteFunc(s.all(wanted), func(event keep.Event) bool {
		return event.Object == nil || event.Object.GroupKind() != schema.ParseGroupKind(kind) ||
			event.Object.Name != s.named(name)
	})
}

// lines returns all events, one per line.
func (s *site) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, event := range s.events {
		parts := []string{string(event.Type), string(event.Action), event.Message}
		if event.Object != nil {
			parts = slices.Insert(parts, 1, event.Object.String())
		}
		line := strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
		lines = append(lines, strings.ReplaceAll(line, s.name, "NS"))
	}
	return lines
}

// named puts the name of the site into a name.
func (s *site) named(name string) string { return strings.ReplaceAll(name, "NS", s.name) }

// at returns the client of a kind in the namespace of the site.
func (s *site) at(kind string) dynamic.ResourceInterface {
	s.t.Helper()
	group := schema.ParseGroupKind(s.named(kind))
	resource, err := s.admin.FindKind(s.t.Context(), group)
	if err != nil {
		s.admin.Refresh()
		resource, err = s.admin.FindKind(s.t.Context(), group)
	}
	s.must(err)
	return s.admin.In(resource, s.name)
}

// get is an object as it is; nil if it is not there.
func (s *site) get(kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	object, err := s.at(kind).Get(s.t.Context(), s.named(name), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return object
}

// patch changes an object as bob would.
func (s *site) patch(kind, name, merge string, subresource ...string) {
	s.t.Helper()
	s.patchAs("bob", kind, name, merge, subresource...)
}

func (s *site) patchAs(manager, kind, name, merge string, subresource ...string) {
	s.t.Helper()
	_, err := s.at(kind).Patch(s.t.Context(), s.named(name), types.MergePatchType, []byte(s.named(merge)),
		metav1.PatchOptions{FieldManager: manager}, subresource...)
	s.must(err)
}

// delete deletes an object.
func (s *site) delete(kind, name string) {
	s.t.Helper()
	s.must(s.at(kind).Delete(s.t.Context(), s.named(name), metav1.DeleteOptions{}))
}

// body returns the fields of an object, without those that the server sets.
func body(object *unstructured.Unstructured) map[string]any {
	if object == nil || object.GetDeletionTimestamp() != nil {
		return nil
	}
	object = object.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if len(object.GetAnnotations()) == 0 { // its controller may not have come to it yet
		object.SetAnnotations(nil)
	}
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(object.Object, "spec", field)
	}
	delete(object.Object, "status")
	return object.Object
}

// quiet waits until no requests were sent for a while.
func (s *site) quiet() {
	s.t.Helper()
	before, since := -1, time.Now()
	s.until("nothing is asked for", func() bool {
		if now := s.keeping.count(isAny); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 300*time.Millisecond
	})
}

// make creates an object as another client.
func (s *site) make(manifest, manager string) {
	s.t.Helper()
	object := sandboxtest.ParseObject(s.t, s.named(manifest))
	_, err := s.at(object.GroupVersionKind().GroupKind().String()).Create(s.t.Context(), object,
		metav1.CreateOptions{FieldManager: manager})
	s.must(err)
}

// awaitMap waits until a ConfigMap is as wanted.
func awaitMap(t *testing.T, key string, wanted func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	return sandboxtest.Await(t, test, maps, key, wanted)
}
