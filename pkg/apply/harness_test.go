package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// test is the control plane that all tests of this package share.
var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// patience is far longer than any successful operation takes.
const patience = 5 * time.Minute

// The options of the three modes.
var (
	installMode   = object.Options{Mode: graph.Install}
	updateMode    = object.Options{Mode: graph.Update}
	reconcileMode = object.Options{Mode: graph.Reconcile}
)

func inMode(mode graph.Mode) object.Options { return object.Options{Mode: mode} }

// connect returns a connection to the control plane.
func connect(t testing.TB) *cluster.Cluster {
	t.Helper()
	return test.Connect(t)
}

// connectThrough returns a connection that calls a function before each request.
func connectThrough(t testing.TB, before func(*http.Request) error) *cluster.Cluster {
	t.Helper()
	return sandboxtest.Connect(t, sandboxtest.Before(test.Sandbox(t).Config, before))
}

// load reads a payload of files in txtar, in which NS stands for a namespace. Its APIServices are deleted after the
// test: no namespace of any test is emptied while an API does not answer.
func load(t *testing.T, name, namespace, files string) *payload.Payload {
	t.Helper()
	release := sandboxtest.LoadRelease(t, namespace, files, payload.Options{Name: name})
	for _, m := range release.Manifests {
		if id := m.ID(); id.Kind == "APIService" {
			t.Cleanup(func() {
				path := "/apis/apiregistration.k8s.io/v1/apiservices/" + id.Name
				_ = test.Client(t).CoreV1().RESTClient().Delete().AbsPath(path).Do(context.Background()).Error()
			})
		}
	}
	return release
}

// An applied payload has the report of the run, and its events.
type applied struct {
	*apply.Report
	events []apply.Event
	record *record.Record
}

// run applies a payload with its own record.
func run(t testing.TB, ctx context.Context, release *payload.Payload, options apply.Options) applied {
	t.Helper()
	return runOn(t, ctx, connect(t), release, options)
}

// runOn is like run, over a given connection.
func runOn(t testing.TB, ctx context.Context, c *cluster.Cluster, release *payload.Payload,
	options apply.Options) applied {
	t.Helper()
	store := record.NewStore(c.Client, "default", release.Name)
	known, _, err := store.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var places []inventory.Scope
	for _, manifest := range release.Manifests {
		places = append(places, inventory.Scope{
			Kind:      manifest.ID().GroupKind(),
			Namespace: manifest.ID().Namespace,
		})
	}
	before, err := inventory.Take(ctx, c, places, nil)
	if err != nil {
		t.Fatal(err)
	}
	did := applied{record: known}
	if options.Timeout == 0 {
		options.Timeout = patience
	}
	options.Release, options.Journal = release.Name, object.NewJournal(store, known)
	onEvent := options.OnEvent
	options.OnEvent = func(event apply.Event) {
		did.events = append(did.events, event)
		if onEvent != nil {
			onEvent(event)
		}
	}
	did.Report = apply.Run(ctx, c, release, before, options)
	if did.Fingerprints != nil {
		known.Fingerprints = did.Fingerprints.Bytes()
		_ = store.Save(context.WithoutCancel(ctx), known) // this save only costs requests
	}
	return did
}

// actions returns the actions of the run, one line for each manifest.
func (a applied) actions() string {
	var text strings.Builder
	for _, change := range a.Changes {
		fmt.Fprintf(&text, "%s %s\n", change.Action, change.ID)
	}
	return text.String()
}
