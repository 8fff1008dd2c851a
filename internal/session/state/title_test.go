package state

import (
	"testing"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/why"
)

// TestTitlesOfStatuses are the first lines for people.
func TestTitlesOfStatuses(t *testing.T) {
	for want, s := range map[string]Status{
		"release shop: not applied": {},
		"release shop: install, 40% done": {
			State:   record.Partial,
			Mode:    "install",
			Percent: new(40),
		},
		"release shop: install of 1.0.0, not complete": {State: record.Partial, Mode: "install", Version: "1.0.0"},
		"release shop: update from 1.0.0 to 1.1.0, 0% done": {
			State:    record.Partial,
			Mode:     "update",
			Previous: "1.0.0",
			Version:  "1.1.0",
			Percent:  new(0),
		},
		"release shop: update to 1.1.0, not complete": {State: record.Partial, Mode: "update", Version: "1.1.0"},
		"release shop 1.1.0: completed, re-applying, 40% done": {
			State:    record.Completed,
			Version:  "1.1.0",
			Percent:  new(40),
			Progress: &progress.Progress{},
			Lock:     &LockStatus{},
		},
		"release shop 1.1.0: completed, last re-apply not finished, 40% done": {
			State: record.Completed, Version: "1.1.0", Percent: new(40), Progress: &progress.Progress{},
			Lock: &LockStatus{Expired: true},
		},
		"release shop 1.1.0: complete, and 1 test failed": {
			State:   record.Completed,
			Version: "1.1.0",
			History: &record.HistoryEntry{FailedTests: make([]record.ObjectFailure, 1)},
		},
		"release shop 1.1.0, after 1.0.0: complete": {
			State:    record.Completed,
			Mode:     "update",
			Previous: "1.0.0",
			Version:  "1.1.0",
			Done:     true,
		},
		"release shop 1.1.0: complete (some checks unavailable)": {
			State:   record.Completed,
			Mode:    "update",
			Version: "1.1.0",
			Unknown: []string{"pods"},
		},
		"release shop 1.1.0: complete, with problems": {
			State:   record.Completed,
			Mode:    "update",
			Version: "1.1.0",
			Objects: []*why.Answer{{}},
		},
		"release shop 1.1.0: complete, and another version is requested": {
			State:          record.Completed,
			Version:        "1.1.0",
			ClusterVersion: &VersionStatus{Requested: "1.2.0"},
		},
	} {
		s.Release = "shop"
		if got := s.Title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
