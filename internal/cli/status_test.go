package cli

import (
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
)

// TestAStatusThatOnlyGetsOlderIsNoOther looks at what a watch would print again.
func TestAStatusThatOnlyGetsOlderIsNoOther(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(after time.Duration, change func(*releaseStatus)) *releaseStatus {
		now := began.Add(after)
		s := &releaseStatus{Time: now, Release: "shop", State: record.Partial, Mode: "update", Version: "1.1.0", Previous: "1.0.0", Messages: []why.Message{{Text: "it is applied, for " + age(now, began)}}}
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
			before := at(time.Second, same).content(format)
			if got := at(time.Hour, c.change).content(format) != before; got != c.isOther {
				t.Errorf("%s, as %s: it is another one: %t", name, format, got)
			}
		}
	}
	away := func(port string) *releaseStatus {
		return at(time.Second, func(s *releaseStatus) { s.Unreachable = "read 127.0.0.1:" + port })
	}
	if away("1").content(asText) != away("2").content(asText) {
		t.Error("an outage is told of for each attempt")
	}
}

// TestTitlesOfStatuses are the first lines for people.
func TestTitlesOfStatuses(t *testing.T) {
	for want, s := range map[string]releaseStatus{
		"release shop: not applied":                                      {},
		"release shop: install, 40% done":                                {State: record.Partial, Mode: "install", Percent: new(40)},
		"release shop: install of 1.0.0, not complete":                   {State: record.Partial, Mode: "install", Version: "1.0.0"},
		"release shop: update from 1.0.0 to 1.1.0, 0% done":              {State: record.Partial, Mode: "update", Previous: "1.0.0", Version: "1.1.0", Percent: new(0)},
		"release shop: update to 1.1.0, not complete":                    {State: record.Partial, Mode: "update", Version: "1.1.0"},
		"release shop 1.1.0: complete once, and applied again, 40% done": {State: record.Completed, Mode: "reconcile", Version: "1.1.0", Percent: new(40)},
		"release shop 1.1.0, after 1.0.0: complete":                      {State: record.Completed, Mode: "update", Previous: "1.0.0", Version: "1.1.0", Done: true},
		"release shop 1.1.0: complete, as far as is known":               {State: record.Completed, Mode: "update", Version: "1.1.0", Unknown: []string{"pods"}},
		"release shop 1.1.0: complete, and not all is well":              {State: record.Completed, Mode: "update", Version: "1.1.0", Objects: []*why.Answer{{}}},
		"release shop 1.1.0: complete, and another version is requested": {State: record.Completed, Version: "1.1.0", ClusterVersion: &versionStatus{Requested: "1.2.0"}},
	} {
		s.Release = "shop"
		if got := s.title(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
