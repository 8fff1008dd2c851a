package deletion_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

var (
	migrate = deletion.DeletionHook{Name: "MigrateApp", Owner: "app-op"}
	detach  = deletion.DeletionHook{Name: "Detach", Owner: "storage-op"}
	node    = deletion.MachineNode{Name: "n1"}
	drained = deletion.Drain{IsDone: true}
	there   = deletion.Infrastructure{Exists: true, Name: "KwokMachine demo/a"}
)

func TestOpenShift(t *testing.T) {
	cordoned := deletion.MachineNode{Name: "n1", IsCordoned: true}
	tests := map[string]struct {
		given deletion.Snapshot
		want  deletion.DeletionStep
	}{
		"no node: nothing to drain": {
			deletion.Snapshot{PreDrain: []deletion.DeletionHook{migrate}},
			deletion.DeletionStep{Stage: deletion.Draining, Action: deletion.SkipDrain, Reason: "DrainSkipped", Message: "Node drain skipped"},
		},
		"a node that is excluded is not drained, even if it is gone": {
			deletion.Snapshot{IsExcluded: true, Node: deletion.MachineNode{Name: "n1", IsGone: true}},
			deletion.DeletionStep{Stage: deletion.Draining, Action: deletion.SkipDrain, Reason: "DrainSkipped", Message: "Node drain skipped"},
		},
		"a pre-drain hook": {
			deletion.Snapshot{PreDrain: []deletion.DeletionHook{migrate}, Node: node},
			deletion.DeletionStep{
				Stage: deletion.BeforeDrain, Action: deletion.Wait, Reason: "HookPresent",
				Message: "waiting for pre-drain hooks: MigrateApp (app-op)",
			},
		},
		"a pre-drain hook holds though the node is gone": {
			deletion.Snapshot{PreDrain: []deletion.DeletionHook{migrate}, Node: deletion.MachineNode{Name: "n1", IsGone: true}},
			deletion.DeletionStep{
				Stage: deletion.BeforeDrain, Action: deletion.Wait, Reason: "HookPresent",
				Message: "waiting for pre-drain hooks: MigrateApp (app-op)",
			},
		},
		"a node is cordoned before pods are evicted": {
			deletion.Snapshot{Node: node},
			deletion.DeletionStep{Stage: deletion.Draining, Action: deletion.Cordon, Reason: "DrainProceeds"},
		},
		"a node is cordoned again": {
			deletion.Snapshot{Node: node, Drain: deletion.Drain{}.Evicted([]string{"pod a"}, false, "")},
			deletion.DeletionStep{Stage: deletion.Draining, Action: deletion.Cordon, Reason: "DrainProceeds"},
		},
		"a problem is told instead of pods": {
			deletion.Snapshot{Node: cordoned, Drain: deletion.Drain{}.Evicted([]string{"pod a"}, false, "list pods: no connection")},
			deletion.DeletionStep{
				Stage: deletion.Draining, Action: deletion.Wait, Reason: "DrainError",
				Message: "list pods: no connection", After: 5 * time.Second,
			},
		},
		"a full node": {
			deletion.Snapshot{Node: cordoned, Drain: deletion.Drain{}.Evicted([]string{"a", "b", "c", "d", "e", "f", "g"}, true, "")},
			deletion.DeletionStep{
				Stage: deletion.Draining, Action: deletion.Wait, Reason: "DrainError",
				Message: "a; b; c; d; e; and 2 more", After: 5 * time.Second,
			},
		},
		"a problem is no empty node": {
			deletion.Snapshot{Node: cordoned, Drain: deletion.Drain{}.Evicted(nil, false, "list pods: no connection")},
			deletion.DeletionStep{
				Stage: deletion.Draining, Action: deletion.Wait, Reason: "DrainError",
				Message: "list pods: no connection", After: 5 * time.Second,
			},
		},
		"an empty node is drained": {
			deletion.Snapshot{Node: cordoned, Drain: deletion.Drain{}.Evicted(nil, false, "")},
			deletion.DeletionStep{
				Stage: deletion.Draining, Action: deletion.RecordDrained, Reason: "DrainSucceeded", Message: "Drain finished successfully",
			},
		},
		"a pre-terminate hook": {
			deletion.Snapshot{Node: node, Drain: drained, PreTerminate: []deletion.DeletionHook{detach}, Infrastructure: there},
			deletion.DeletionStep{
				Stage: deletion.BeforeTerminate, Action: deletion.Wait, Reason: "HookPresent",
				Message: "waiting for pre-terminate hooks: Detach (storage-op)",
			},
		},
		"a pre-drain hook after the drain": {
			deletion.Snapshot{Node: node, Drain: drained, PreDrain: []deletion.DeletionHook{migrate}, Infrastructure: there},
			deletion.DeletionStep{Stage: deletion.Terminating, Action: deletion.DeleteInfrastructure, Reason: "Terminating"},
		},
		"infrastructure that was asked to go, and is gone, is not held by a late hook": {
			deletion.Snapshot{
				Node: node, Drain: drained, PreTerminate: []deletion.DeletionHook{detach},
				Infrastructure: deletion.Infrastructure{IsDeleting: true},
			},
			deletion.DeletionStep{Stage: deletion.RemovingNode, Action: deletion.DeleteNode, Reason: "Terminated"},
		},
		"a problem does not hide a hook": {
			deletion.Snapshot{
				Drain: drained, PreTerminate: []deletion.DeletionHook{detach}, Infrastructure: deletion.Infrastructure{Problem: "busy"},
			},
			deletion.DeletionStep{
				Stage: deletion.BeforeTerminate, Action: deletion.Wait, Reason: "HookPresent",
				Message: "waiting for pre-terminate hooks: Detach (storage-op)",
			},
		},
		"a problem of the infrastructure": {
			deletion.Snapshot{Drain: drained, Infrastructure: deletion.Infrastructure{Exists: true, Problem: "busy", RetryAfter: 7 * time.Second}},
			deletion.DeletionStep{
				Stage: deletion.Terminating, Action: deletion.Wait, Reason: "InfrastructureProblem", Message: "busy", After: 7 * time.Second,
			},
		},
		"nothing is left": {
			deletion.Snapshot{Drain: drained, Node: deletion.MachineNode{Name: "n1", IsGone: true}},
			deletion.DeletionStep{Stage: deletion.Completed, Action: deletion.Release, Reason: "Deleted"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, deletion.OpenShift.Next(test.given)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvicted(t *testing.T) {
	var d deletion.Drain
	for _, step := range []struct {
		left    []string
		problem string
		want    int
	}{
		{left: []string{"a", "b"}, want: 1},
		{left: []string{"a", "b"}, want: 2},
		{left: []string{"b"}, want: 1},
		{left: []string{"b"}, want: 2},
		{problem: "no connection", want: 3}, // is no progress
		{left: []string{"b"}, want: 4},
	} {
		d = d.Evicted(step.left, false, step.problem)
		if d.Looks != step.want || !d.HasLooked {
			t.Errorf("after %+v it is %+v", step, d)
		}
	}
}
