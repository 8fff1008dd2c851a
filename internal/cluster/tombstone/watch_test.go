package tombstone_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// follow looks at objects whenever something may have changed, until they are as wanted.
func follow(t *testing.T, c *cluster.Cluster, changes <-chan struct{}, objects []kinds.ID,
	wanted ...tombstone.DeleteState) {
	t.Helper()
	var states []tombstone.DeleteState
	for {
		select {
		case _, more := <-changes:
			states = nil
			for _, object := range objects {
				states = append(states, tombstone.Observe(t.Context(), c, object, "").State)
			}
			if slices.Equal(states, wanted) {
				return
			}
			if !more {
				t.Fatalf("the watch has ended with states %v, want %v", states, wanted)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("no signal since the states were %v; want %v", states, wanted)
		}
	}
}

func TestChangesUntilAllObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	definition := define(t, c, "followed.example.com", "v1")
	objects := []kinds.ID{
		config(namespace, "held"), widget("followed.example.com", namespace, "held"), definition,
		{Group: "never.example.com", Kind: "Thing", Name: "any"},
	}
	bring(t, c, objects[0], "example.com/hold")
	bring(t, c, objects[1], "example.com/hold")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := tombstone.Watch(ctx, c, objects)

	follow(t, c, changes, objects, tombstone.Present, tombstone.Present, tombstone.Present, tombstone.Absent)
	remove(t, c, objects[0])
	follow(t, c, changes, objects, tombstone.Terminating, tombstone.Present, tombstone.Present, tombstone.Absent)
	remove(t, c, definition)
	follow(t, c, changes, objects, tombstone.Terminating, tombstone.Terminating, tombstone.Terminating,
		tombstone.Absent)
	release(t, c, objects[0])
	follow(t, c, changes, objects, tombstone.Absent, tombstone.Terminating, tombstone.Terminating, tombstone.Absent)
	release(t, c, objects[1])
	follow(t, c, changes, objects, tombstone.Absent, tombstone.Absent, tombstone.Absent, tombstone.Absent)
	cancel()
	for range changes { // ends when the channel is closed
	}
}

func TestChangesEndForUnservedKinds(t *testing.T) {
	c, looks := testbed.Connect(t), 0
	for range tombstone.Watch(t.Context(), c, []kinds.ID{{Group: "never.example.com", Kind: "Thing", Name: "any"}}) {
		looks++
	}
	if looks == 0 {
		t.Error("no signal at the start")
	}
	for range tombstone.Watch(t.Context(), c, nil) {
		looks++
	}
}

func TestChangesEndWithTheKind(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	definition := define(t, c, "ending.example.com", "v1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	changes := tombstone.Watch(ctx, c, []kinds.ID{widget("ending.example.com", namespace, "any")})
	remove(t, testbed.Connect(t), definition)
	for range changes { // no caller looks
	}
	if ctx.Err() != nil {
		t.Error("the kind is no longer served, but the channel is still open")
	}
}

func TestChangesAfterARestartOfTheServer(t *testing.T) {
	own := sandboxtest.Start(t, sandbox.Options{Nodes: sandbox.NoNodes})
	c := sandboxtest.Connect(t, own.Config)
	objects := []kinds.ID{config("default", "held")}
	bring(t, c, objects[0], "example.com/hold")
	remove(t, c, objects[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := tombstone.Watch(ctx, c, objects)
	follow(t, c, changes, objects, tombstone.Terminating)

	if err := own.Kill(sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*cluster.Cluster{"one that knows its kinds": c,
		"a new one": sandboxtest.Connect(t, own.Config)} {
		if got := tombstone.Observe(t.Context(), c, objects[0], ""); got.State != tombstone.Unknown || got.Why == "" {
			t.Errorf("to %s, the object of a dead server is %+v", name, got)
		}
	}
	nothing := []kinds.ID{config("default", "nothing")}
	toCome := tombstone.Watch(ctx, c, nothing)
	follow(t, c, toCome, nothing, tombstone.Unknown)
	if err := own.Resume(t.Context(), sandbox.APIServer); err != nil {
		t.Fatal(err)
	}
	follow(t, c, toCome, nothing, tombstone.Absent) // no watch has an event of these objects
	follow(t, c, changes, objects, tombstone.Terminating)
	release(t, c, objects[0])
	follow(t, c, changes, objects, tombstone.Absent)
}
