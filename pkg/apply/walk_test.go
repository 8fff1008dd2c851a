package apply

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/pkg/apply/await"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/record"
)

// attempts walks over a step that fails, and says when it was tried, counted from the first.
func attempts(ctx context.Context, r *run, failures ...error) (at []time.Duration, isDone bool) {
	began := time.Now()
	r.act = func(m *payload.Manifest) (object.Change, error) {
		if m != r.order.steps[0].Manifest {
			return object.Change{Action: object.Created}, nil
		}
		at = append(at, time.Since(began))
		if tried := len(at); tried <= len(failures) {
			return object.Change{}, failures[tried-1]
		}
		return object.Change{Action: object.Created}, nil
	}
	r.walk(ctx)
	return at, r.isDone(0)
}

func TestPausesGrowUpToACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runOf(t, thing)
		failures := make([]error, 30)
		for i := range failures {
			failures[i] = apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
		}
		at, isDone := attempts(t.Context(), r, failures...)
		if !isDone || len(at) != 31 {
			t.Fatal(at, isDone)
		}
		least := 500 * time.Millisecond
		for i := range at[1:] {
			if pause := at[i+1] - at[i]; pause < least || pause > least*6/5 {
				t.Errorf("pause %d is %s, want %s and up to a fifth more", i+1, pause, least)
			}
			least = min(2*least, 15*time.Second)
		}
	})
}

func TestServerSaysHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runOf(t, thing)
		at, _ := attempts(t.Context(), r, apierrors.NewTooManyRequests("slow down", 90), apierrors.NewTooManyRequests("slow down", 0))
		if at[1] != 90*time.Second {
			t.Errorf("it was tried again after %s", at[1])
		}
		if pause := at[2] - at[1]; pause > 2*time.Second {
			t.Errorf("and after that, after %s", pause)
		}
	})
}

func TestPauseEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := runOf(t, thing)
		began := time.Now()
		at, isDone := attempts(ctx, r, apierrors.NewTooManyRequests("slow down", 3600))
		if waited := time.Since(began); isDone || len(at) != 1 || waited != 10*time.Second {
			t.Errorf("%d attempts, and it ended after %s", len(at), waited)
		}
		if change := r.changes[0]; change.Action != object.Failed || change.Err.Reason != object.ClusterOverloaded {
			t.Errorf("it ended as %+v", change)
		}
	})
}

func TestNoWorkerIsHeldInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := runOf(t, thing, strings.ReplaceAll(thing, "hat", "coat")) // one worker, two nodes
		began := time.Now()
		var waited time.Duration
		r.options.Done = func(object.Change) { waited = time.Since(began) }
		attempts(ctx, r, apierrors.NewTooManyRequests("slow down", 3600))
		if !r.isDone(1) || waited != 0 {
			t.Errorf("the other step is done: %t, after %s", r.isDone(1), waited)
		}
	})
}

// A request that is on its way when the run is interrupted may succeed, and with it its node.
func TestWhatIsDoneInTimeIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := runOf(t, thing)
		r.options.Mode = graph.Update
		r.act = func(*payload.Manifest) (object.Change, error) {
			cancel()
			return object.Change{Action: object.Created}, nil
		}
		r.walk(ctx)
		if state := r.walked.State(0); state != graph.OK || len(r.nodes.durations()) != 1 {
			t.Errorf("its node is %q, and took %v", state, r.nodes.durations())
		}
	})
}

const thing = "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}"

// runOf is a run with some manifests, one slot, and no cluster behind it.
func runOf(t *testing.T, manifests ...string) *run {
	t.Helper()
	c, err := cluster.Connect(unreachable)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(c, nil, Options{Journal: object.NewJournal(nil, &record.Record{}), Workers: 1}.withDefaults())
	r.requests = t.Context()
	r.tracker = await.New(t.Context(), c, await.Options{}, await.Handler{})
	r.applier = object.New(t.Context(), c, nil, r.options.objects(), object.Handler{})
	var all []*payload.Manifest
	for _, text := range manifests {
		all = append(all, releaseOf(t, text).Manifests[0])
	}
	r.order, err = newOrder(all, graph.Options{Mode: graph.Install}, func(*payload.Manifest) (bool, error) { return true, nil })
	if err != nil {
		t.Fatal(err)
	}
	r.options.Mode = graph.Install
	r.nodes = newNodes(r.order)
	r.changes, r.areOver = make([]object.Change, len(all)), make([]bool, len(all))
	for i, m := range all {
		r.changes[i] = object.Change{Manifest: m, Action: object.NotDone}
	}
	return r
}

// releaseOf is a payload of one file.
func releaseOf(t *testing.T, text string) *payload.Payload {
	t.Helper()
	release, _, err := payload.Load(t.Context(), folderOf(text), payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}
