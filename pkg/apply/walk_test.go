package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A scripted step calls a function of the test.
type scripted struct {
	object.WalkStep
	do func() object.TryResult
}

func (s scripted) Do(context.Context) object.TryResult { return s.do() }

// script replaces the steps of a run by scripted steps.
func script(r *run, do func(step int) (object.Change, error)) {
	for i, walkStep := range r.order.steps {
		r.order.steps[i] = scripted{walkStep, func() object.TryResult {
			change, err := do(i)
			return r.applier.Result(r.order.tasks[r.order.taskOf[i]].Manifest, change, err)
		}}
	}
}

// attempts walks with a first step that fails. It returns when the step was tried, since its first try.
func attempts(ctx context.Context, r *run, failures ...error) (durations []time.Duration, isDone bool) {
	began := time.Now()
	script(r, func(step int) (object.Change, error) {
		if step > 0 {
			return object.Change{Action: object.Created}, nil
		}
		durations = append(durations, time.Since(began))
		if tried := len(durations); tried <= len(failures) {
			return object.Change{}, failures[tried-1]
		}
		return object.Change{Action: object.Created}, nil
	})
	newWalk(ctx, r.runScope).do()
	return durations, r.results.isDone(0)
}

func TestWalkPausesGrowUpToACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runOf(t, thing)
		failures := make([]error, 30)
		for i := range failures {
			failures[i] = apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
		}
		durations, isDone := attempts(t.Context(), r, failures...)
		if !isDone || len(durations) != 31 {
			t.Fatal(durations, isDone)
		}
		least := 500 * time.Millisecond
		for i := range durations[1:] {
			if pause := durations[i+1] - durations[i]; pause < least || pause > least*6/5 {
				t.Errorf("pause %d is %s, want %s and up to a fifth more", i+1, pause, least)
			}
			least = min(2*least, 15*time.Second)
		}
	})
}

func TestWalkObservesRetryAfterOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runOf(t, thing)
		durations, _ := attempts(t.Context(), r, apierrors.NewTooManyRequests("slow down", 90),
			apierrors.NewTooManyRequests("slow down", 0))
		if durations[1] != 90*time.Second {
			t.Errorf("got a retry after %s", durations[1])
		}
		if pause := durations[2] - durations[1]; pause > 2*time.Second {
			t.Errorf("got a second retry after %s", pause)
		}
	})
}

func TestWalkPauseEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := runOf(t, thing)
		began := time.Now()
		durations, isDone := attempts(ctx, r, apierrors.NewTooManyRequests("slow down", 3600))
		if waited := time.Since(began); isDone || len(durations) != 1 || waited != 10*time.Second {
			t.Errorf("%d attempts, and it ended after %s", len(durations), waited)
		}
		if change := r.results.changes[0]; change.Action != object.Failed ||
			change.Err.Reason != object.ClusterOverloaded {
			t.Errorf("got change %+v, want action %s for reason %s", change, object.Failed, object.ClusterOverloaded)
		}
	})
}

func TestWalkPausedStepOccupiesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		r := runOf(t, thing, strings.ReplaceAll(thing, "hat", "coat")) // one worker, two nodes
		began := time.Now()
		var waited time.Duration
		r.options.Keeper = KeeperFuncs{OnTake: func(object.Change) { waited = time.Since(began) }}
		attempts(ctx, r, apierrors.NewTooManyRequests("slow down", 3600))
		if !r.results.isDone(1) || waited != 0 {
			t.Errorf("the other step is done: %t, after %s", r.results.isDone(1), waited)
		}
	})
}

// If the run is interrupted during a request that then succeeds, its step and its node are done.
func TestWalkPendingRequestCompletesItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := runOf(t, thing)
		r.options.Mode = graph.Update
		script(r, func(int) (object.Change, error) {
			cancel()
			return object.Change{Action: object.Created}, nil
		})
		newWalk(ctx, r.runScope).do()
		if state := r.nodes.State(0); state != graph.OK || len(r.components.took) != 1 {
			t.Errorf("got node %q, durations %v", state, r.components.took)
		}
	})
}

const thing = "{apiVersion: shop.example.com/v1, kind: Thing, metadata: {name: hat, namespace: shop}}"

// runOf returns a run of manifests, each in its own component, with one worker and without a cluster.
func runOf(t *testing.T, manifests ...string) *run {
	t.Helper()
	c, err := cluster.Connect(unreachable)
	if err != nil {
		t.Fatal(err)
	}
	folder := fstest.MapFS{}
	for i, text := range manifests {
		folder[fmt.Sprintf("0000_10_shop%d_50_thing.yaml", i)] = &fstest.MapFile{Data: []byte(text)}
	}
	release, _, err := payload.Load(t.Context(), folder, payload.Options{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Options: object.Options{
			Mode: graph.Install, Journal: object.NewJournal(nil, &record.Record{}), Manifests: release.Manifests,
		},
		Workers: 1,
	}.withDefaults()
	r := newRun(t.Context(), c, &inventory.Inventory{}, options)
	t.Cleanup(r.close)
	if err := r.plan(); err != nil {
		t.Fatal(err)
	}
	return r
}
