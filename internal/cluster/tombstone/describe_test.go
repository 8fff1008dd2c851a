package tombstone_test

import (
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
)

func TestDescribeReturnsOneLine(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for wanted, o := range map[string]tombstone.Observation{
		"gone":                             {State: tombstone.Absent, Requested: "a"},
		"there":                            {State: tombstone.Present, UID: "a"},
		"still there, and not terminating": {State: tombstone.Present, UID: "a", Requested: "a"},
		"recreated by kubectl-create at noon": {
			State:     tombstone.Reappeared,
			UID:       "b",
			Requested: "a",
			MadeBy:    "kubectl-create at noon",
		},
		"not known: forbidden": {State: tombstone.Unknown, Why: "forbidden"},
		"terminating for 4m, held by finalizer example.com/hold": {
			State: tombstone.Terminating, Since: now.Add(-4 * time.Minute), Finalizers: []string{"example.com/hold"},
		},
		"terminating for 3d1h, held by finalizers example.com/hold, foregroundDeletion (3 Widgets)": {
			State: tombstone.Terminating, Since: now.Add(-73 * time.Hour),
			Finalizers: []string{"example.com/hold", "foregroundDeletion"}, Remains: []string{"3 Widgets"},
		},
		"terminating for 0s": {State: tombstone.Terminating, Since: now.Add(time.Hour)},
	} {
		if got := o.Describe(now); got != wanted {
			t.Errorf("%q, want %q", got, wanted)
		}
	}
}

func TestIsPending(t *testing.T) {
	for name, test := range map[string]struct {
		o      tombstone.Observation
		wanted bool
	}{
		"absent": {tombstone.Observation{State: tombstone.Absent, Requested: "a"}, false},
		"recreated": {tombstone.Observation{
			State:     tombstone.Reappeared,
			UID:       "b",
			Requested: "a",
		}, false},
		"there, and its end was asked for": {tombstone.Observation{State: tombstone.Present, UID: "a", Requested: "a"},
			true},
		"exists, and was never observed": {tombstone.Observation{State: tombstone.Present, UID: "a"}, false},
		"terminating":                    {tombstone.Observation{State: tombstone.Terminating, UID: "a"}, true},
		"not known":                      {tombstone.Observation{State: tombstone.Unknown}, true},
		"not even looked at":             {tombstone.Observation{}, true},
	} {
		if got := test.o.IsPending(); got != test.wanted {
			t.Errorf("%s: pending %t, want %t", name, got, test.wanted)
		}
	}
}
