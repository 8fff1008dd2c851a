package object

import (
	"testing"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/graph"
)

func TestDecisionOnAnObject(t *testing.T) {
	for name, c := range map[string]struct {
		facts facts
		want  decision
	}{
		"new":                       {facts{}, set},
		"exists":                    {facts{exists: true, isTrusted: true}, set},
		"of another release":        {facts{owner: "shop", isUntouched: true, exists: true}, refuse},
		"unchanged since its apply": {facts{exists: true, isTrusted: true, isUntouched: true}, skip},
		"create-only, as applied": {facts{exists: true, isTrusted: true, isUntouched: true, isCreateOnly: true},
			skip},
		"create-only, new":       {facts{isCreateOnly: true}, create},
		"create-only, exists":    {facts{isCreateOnly: true, exists: true, isTrusted: true}, keep},
		"create-only, may exist": {facts{isCreateOnly: true, exists: true}, create},
		"a Job that has run":     {facts{hasFinished: true}, keepDone},
		"a create-only Job, too": {facts{hasFinished: true, isCreateOnly: true}, keepDone},
	} {
		if got := decide(c.facts); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestDecisionOnADelete(t *testing.T) {
	asked, sent := record.Tombstone{UID: "1"}, record.Tombstone{UID: "1", Sent: true}
	for name, c := range map[string]struct {
		state      tombstone.DeleteState
		asked      record.Tombstone
		hasDeleted bool
		owner      string
		inUpdate   deletion
		otherwise  deletion
	}{
		"absent":                {state: tombstone.Absent, inUpdate: alreadyAbsent, otherwise: alreadyAbsent},
		"deleted, as requested": {state: tombstone.Absent, asked: sent, inUpdate: noteDeleted, otherwise: noteDeleted},
		"unknown":               {state: tombstone.Unknown, inUpdate: lookAgain, otherwise: leaveUnknown},
		"unknown, never sent": {
			state:     tombstone.Unknown,
			asked:     asked,
			inUpdate:  lookAgain,
			otherwise: leaveUnknown,
		},
		"unknown, deleted before": {
			state:      tombstone.Unknown,
			hasDeleted: true,
			inUpdate:   leaveUnknown,
			otherwise:  leaveUnknown,
		},
		"exists": {state: tombstone.Present, inUpdate: deleteNow, otherwise: leaveForUpdate},
		"exists, never sent": {
			state:     tombstone.Present,
			asked:     asked,
			inUpdate:  deleteNow,
			otherwise: leaveForUpdate,
		},
		"exists, sent": {state: tombstone.Present, asked: sent, inUpdate: deleteNow, otherwise: leaveUnreached},
		"exists, deleted before": {
			state:      tombstone.Present,
			hasDeleted: true,
			inUpdate:   deleteNow,
			otherwise:  leaveRemade,
		},
		"recreated": {state: tombstone.Reappeared, asked: sent, inUpdate: deleteNow, otherwise: leaveRemade},
		"terminating": {
			state:     tombstone.Terminating,
			asked:     sent,
			inUpdate:  awaitDeletion,
			otherwise: awaitDeletion,
		},
		"of another release": {
			state:     tombstone.Present,
			owner:     "shop",
			inUpdate:  refuseDeletion,
			otherwise: refuseDeletion,
		},
		"terminating, of another release": {
			state:     tombstone.Terminating,
			owner:     "shop",
			inUpdate:  refuseDeletion,
			otherwise: refuseDeletion,
		},
		"deleted, whatever its owner": {
			state:     tombstone.Absent,
			owner:     "shop",
			inUpdate:  alreadyAbsent,
			otherwise: alreadyAbsent,
		},
	} {
		f := deletionFacts{
			seen:       tombstone.Observation{State: c.state},
			requested:  c.asked,
			hasDeleted: c.hasDeleted,
			owner:      c.owner,
		}
		for mode, want := range map[graph.Mode]deletion{graph.Update: c.inUpdate, graph.Install: c.otherwise,
			graph.Reconcile: c.otherwise} {
			if f.mode = mode; decideDeletion(f) != want {
				t.Errorf("%s, %s: %s, want %s", name, mode, decideDeletion(f), want)
			}
		}
	}
}
