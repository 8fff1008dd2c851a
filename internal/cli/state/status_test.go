package state

import (
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// TestWatchedStatusChanges checks which changes make a watch print a status again.
func TestWatchedStatusChanges(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	statusAt := func(after time.Duration, change func(*state.Status)) *state.Status {
		now := began.Add(after)
		s := &state.Status{
			Time:     now,
			Release:  "shop",
			State:    record.Partial,
			Mode:     "update",
			Version:  "1.1.0",
			Previous: "1.0.0",
			Messages: []why.Message{{Text: "it is applied, for " + printable.Age(now, began)}},
		}
		s.Gates = []state.Gate{{Reason: "AdminAck", Message: "no", Since: &began}}
		change(s)
		return s
	}
	same := func(*state.Status) {}
	for name, c := range map[string]struct {
		change  func(*state.Status)
		isOther bool
	}{
		"older":              {same, false},
		"another version":    {func(s *state.Status) { s.Version = "1.2.0" }, true},
		"further":            {func(s *state.Status) { s.Percent = new(40) }, true},
		"the gate is lifted": {func(s *state.Status) { s.Gates = nil }, true},
		"no response":        {func(s *state.Status) { s.Unreachable = "connection refused" }, true},
	} {
		for _, format := range []core.Output{core.Text, core.JSON, core.YAML} {
			before := statusText{statusAt(time.Second, same)}.content(format)
			if got := (statusText{statusAt(time.Hour, c.change)}).content(format) != before; got != c.isOther {
				t.Errorf("%s, as %s: got a changed status: %t, want %t", name, format, got, c.isOther)
			}
		}
	}
	away := func(port string) *state.Status {
		return statusAt(time.Second, func(s *state.Status) { s.Unreachable = "read 127.0.0.1:" + port })
	}
	if (statusText{away("1")}).content(core.Text) != (statusText{away("2")}).content(core.Text) {
		t.Error("an outage is printed for each attempt, want once")
	}
}
