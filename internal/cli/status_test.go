package cli

import (
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// TestAStatusThatOnlyGetsOlderIsNoOther looks at what a watch would print again.
func TestAStatusThatOnlyGetsOlderIsNoOther(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after time.Duration, change func(*releaseStatus)) *releaseStatus {
		now := began.Add(after)
		s := &releaseStatus{Time: now, Release: "shop", State: record.Partial, Mode: "update", Version: "1.1.0", Previous: "1.0.0", Messages: []why.Message{{Text: "it is applied, for " + printable.Age(now, began)}}}
		s.Gates = []releaseGate{{Reason: "AdminAck", Message: "no", Since: &began}}
		change(s)
		return s
	}
	same := func(*releaseStatus) {}
	for name, c := range map[string]struct {
		change  func(*releaseStatus)
		isOther bool
	}{
		"older":                 {same, false},
		"another version":       {func(s *releaseStatus) { s.Version = "1.2.0" }, true},
		"further":               {func(s *releaseStatus) { s.Percent = new(40) }, true},
		"what holds it is gone": {func(s *releaseStatus) { s.Gates = nil }, true},
		"the cluster is away":   {func(s *releaseStatus) { s.Unreachable = "connection refused" }, true},
	} {
		for _, format := range []output{asText, asJSON, asYAML} {
			before := statusText{at(time.Second, same)}.content(format)
			if got := (statusText{at(time.Hour, c.change)}).content(format) != before; got != c.isOther {
				t.Errorf("%s, as %s: it is another one: %t", name, format, got)
			}
		}
	}
	away := func(port string) *releaseStatus {
		return at(time.Second, func(s *releaseStatus) { s.Unreachable = "read 127.0.0.1:" + port })
	}
	if (statusText{away("1")}).content(asText) != (statusText{away("2")}).content(asText) {
		t.Error("an outage is told of for each attempt")
	}
}
