package machine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/machines/machine"
)

var (
	migrate = machine.DeletionHook{Name: "MigrateApp", Owner: "app-op"}
	detach  = machine.DeletionHook{Name: "Detach", Owner: "storage-op"}
	node    = machine.MachineNode{Name: "n1"}
	drained = machine.Drain{IsDone: true}
	there   = machine.Infrastructure{Exists: true, Name: "KwokMachine demo/a"}
)

func TestOpenShift(t *testing.T) {
	cordoned := machine.MachineNode{Name: "n1", IsCordoned: true}
	tests := map[string]struct {
		given machine.Snapshot
		want  machine.DeletionStep
	}{
		"no node: nothing to drain": {
			machine.Snapshot{PreDrain: []machine.DeletionHook{migrate}},
			machine.DeletionStep{Stage: machine.Draining, Action: machine.SkipDrain, Reason: "DrainSkipped", Message: "Node drain skipped"},
		},
		"a node that is excluded is not drained, even if it is gone": {
			machine.Snapshot{IsExcluded: true, Node: machine.MachineNode{Name: "n1", IsGone: true}},
			machine.DeletionStep{Stage: machine.Draining, Action: machine.SkipDrain, Reason: "DrainSkipped", Message: "Node drain skipped"},
		},
		"a pre-drain hook": {
			machine.Snapshot{PreDrain: []machine.DeletionHook{migrate}, Node: node},
			machine.DeletionStep{
				Stage: machine.BeforeDrain, Action: machine.Wait, Reason: "HookPresent",
				Message: "waiting for pre-drain hooks: MigrateApp (app-op)",
			},
		},
		"a pre-drain hook holds though the node is gone": {
			machine.Snapshot{PreDrain: []machine.DeletionHook{migrate}, Node: machine.MachineNode{Name: "n1", IsGone: true}},
			machine.DeletionStep{
				Stage: machine.BeforeDrain, Action: machine.Wait, Reason: "HookPresent",
				Message: "waiting for pre-drain hooks: MigrateApp (app-op)",
			},
		},
		"a node is cordoned before pods are evicted": {
			machine.Snapshot{Node: node},
			machine.DeletionStep{Stage: machine.Draining, Action: machine.Cordon, Reason: "DrainProceeds"},
		},
		"a node is cordoned again": {
			machine.Snapshot{Node: node, Drain: machine.Drain{}.Evicted([]string{"pod a"}, false, "")},
			machine.DeletionStep{Stage: machine.Draining, Action: machine.Cordon, Reason: "DrainProceeds"},
		},
		"a problem is told instead of pods": {
			machine.Snapshot{Node: cordoned, Drain: machine.Drain{}.Evicted([]string{"pod a"}, false, "list pods: no connection")},
			machine.DeletionStep{
				Stage: machine.Draining, Action: machine.Wait, Reason: "DrainError",
				Message: "list pods: no connection", After: 5 * time.Second,
			},
		},
		"a full node": {
			machine.Snapshot{Node: cordoned, Drain: machine.Drain{}.Evicted([]string{"a", "b", "c", "d", "e", "f", "g"}, true, "")},
			machine.DeletionStep{
				Stage: machine.Draining, Action: machine.Wait, Reason: "DrainError",
				Message: "a; b; c; d; e; and 2 more", After: 5 * time.Second,
			},
		},
		"a problem is no empty node": {
			machine.Snapshot{Node: cordoned, Drain: machine.Drain{}.Evicted(nil, false, "list pods: no connection")},
			machine.DeletionStep{
				Stage: machine.Draining, Action: machine.Wait, Reason: "DrainError",
				Message: "list pods: no connection", After: 5 * time.Second,
			},
		},
		"an empty node is drained": {
			machine.Snapshot{Node: cordoned, Drain: machine.Drain{}.Evicted(nil, false, "")},
			machine.DeletionStep{
				Stage: machine.Draining, Action: machine.RecordDrained, Reason: "DrainSucceeded", Message: "Drain finished successfully",
			},
		},
		"a pre-terminate hook": {
			machine.Snapshot{Node: node, Drain: drained, PreTerminate: []machine.DeletionHook{detach}, Infrastructure: there},
			machine.DeletionStep{
				Stage: machine.BeforeTerminate, Action: machine.Wait, Reason: "HookPresent",
				Message: "waiting for pre-terminate hooks: Detach (storage-op)",
			},
		},
		"a pre-drain hook after the drain": {
			machine.Snapshot{Node: node, Drain: drained, PreDrain: []machine.DeletionHook{migrate}, Infrastructure: there},
			machine.DeletionStep{Stage: machine.Terminating, Action: machine.DeleteInfrastructure, Reason: "Terminating"},
		},
		"infrastructure that was asked to go, and is gone, is not held by a late hook": {
			machine.Snapshot{
				Node: node, Drain: drained, PreTerminate: []machine.DeletionHook{detach},
				Infrastructure: machine.Infrastructure{IsDeleting: true},
			},
			machine.DeletionStep{Stage: machine.RemovingNode, Action: machine.DeleteNode, Reason: "Terminated"},
		},
		"a problem does not hide a hook": {
			machine.Snapshot{
				Drain: drained, PreTerminate: []machine.DeletionHook{detach}, Infrastructure: machine.Infrastructure{Problem: "busy"},
			},
			machine.DeletionStep{
				Stage: machine.BeforeTerminate, Action: machine.Wait, Reason: "HookPresent",
				Message: "waiting for pre-terminate hooks: Detach (storage-op)",
			},
		},
		"a problem of the infrastructure": {
			machine.Snapshot{Drain: drained, Infrastructure: machine.Infrastructure{Exists: true, Problem: "busy", RetryAfter: 7 * time.Second}},
			machine.DeletionStep{
				Stage: machine.Terminating, Action: machine.Wait, Reason: "InfrastructureProblem", Message: "busy", After: 7 * time.Second,
			},
		},
		"nothing is left": {
			machine.Snapshot{Drain: drained, Node: machine.MachineNode{Name: "n1", IsGone: true}},
			machine.DeletionStep{Stage: machine.Completed, Action: machine.Release, Reason: "Deleted"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, machine.OpenShift.Next(test.given)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEvicted(t *testing.T) {
	var d machine.Drain
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
