package halt_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/updates/halt"
	"github.com/runlevel/runlevel/internal/updates/report"
)

var begin = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func phaseOf(t *testing.T, policy string) halt.Phase {
	t.Helper()
	p := halt.Phase{To: "1.4.1"}
	if err := yaml.UnmarshalStrict([]byte(policy), &p.Policy); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	return p
}

// tallyOf adds entries, each a line such as "20m a Failed", where 20m is the time since the beginning. After a + the
// report has a token; after a - it was sent that long before it was received.
func tallyOf(t *testing.T, p halt.Phase, lines ...string) *halt.Tally {
	t.Helper()
	tally := halt.NewTally(p)
	for _, line := range lines {
		fields := strings.Fields(line)
		after, err := time.ParseDuration(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		e := report.Entry{Received: begin.Add(after), Address: "10.0.0." + fields[1]}
		if fields[1] == "away" {
			length, err := time.ParseDuration(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			e = report.Entry{Received: e.Received, AwaySince: e.Received.Add(-length)}
		} else {
			e.Report = &report.Report{ID: fields[1], From: "1.4.0", Version: "1.4.1", Time: e.Received,
				Condition: report.Condition(fields[2]), Reason: "web is degraded"}
			for _, extra := range fields[3:] {
				if extra == "+" {
					e.HasToken = true
				} else if length, err := time.ParseDuration(extra); err == nil {
					e.Time = e.Time.Add(length)
				} else {
					e.Address = extra
				}
			}
		}
		tally.Add(e)
	}
	return tally
}

func TestHalt(t *testing.T) {
	for name, test := range map[string]struct {
		policy, log string // lines, separated by commas
		resumed     time.Duration
		want        string // of the reason; empty for none
	}{
		"as many as may fail": {"maxFailures: 1", "1m a Failed", 0, ""},
		"one more": {
			"maxFailures: 1", "1m a Failed,1m b Failed",
			0, "2 clusters failed, more than maxFailures 1: 2× web",
		},
		"none may fail": {"maxFailures: 0", "1m a Failed", 0, "1 cluster failed, more than maxFailures 0"},
		"no policy":     {"clusters: 3", "1m a Failed", 0, ""},
		"percentage of the fleet, not of those that began": {
			"{maxFailures: 50%, clusters: 4}", "1m a Failed,1m b Failed",
			0, "",
		},
		"percentage": {
			"{maxFailures: 50%, clusters: 4}", "1m a Failed,1m b Failed,1m c RolledBack",
			0, "3 of 4 clusters failed",
		},
		"doubled":      {"maxFailures: 1", "1m a Failed,2m a Failed,3m a RolledBack", 0, ""},
		"recovered":    {"maxFailures: 0", "1m a Failed,2m a Succeeded", 0, "1 cluster failed"},
		"failed later": {"maxFailures: 0", "1m a Succeeded,2m a Failed", 0, ""},
		"failed while it settles": {
			"{maxFailures: 0, minSuccessTime: 1h}", "1m a Succeeded,60m a Failed",
			0, "1 cluster failed",
		},
		"settled": {"{maxFailures: 0, minSuccessTime: 1h}", "1m a Succeeded,62m a Failed", 0, ""},
		"reported late": {
			"{maxFailures: 0, minSuccessTime: 1h}", "1m a Succeeded,20h a Failed -1199m",
			0, "1 cluster failed",
		},
		"rolled back later": {"maxFailures: 0", "1m a Succeeded,50h a RolledBack", 0, "1 cluster failed"},
		"not finished": {
			"{maxFailures: 0, progressDeadline: 1h}", "1m a Began",
			0, "1× not finished after 1h0m0s",
		},
		"finished late": {"{maxFailures: 0, progressDeadline: 1h}", "1m a Began,200m a Succeeded", 0, ""},
		"began again": {
			"{maxFailures: 0, progressDeadline: 1h}", "1m a Began,2m a Succeeded,3m a Began",
			0, "not finished",
		},
		"late begin":               {"{maxFailures: 0, progressDeadline: 1h}", "2m a Succeeded,3m a Began -2m", 0, ""},
		"time without the service": {"{maxFailures: 0, progressDeadline: 30h}", "1m a Began,40h away 39h", 0, ""},
		"judged by a person":       {"maxFailures: 0", "1m a Failed,1m b Failed", time.Hour, ""},
		"fails after a resume": {
			"maxFailures: 0", "1m a Failed,1m b Failed,61m a Failed",
			time.Hour, "1 cluster failed",
		},
		"too many clusters": {
			"clusters: 2", "1m a Began,1m b Began,1m c Succeeded 10.0.0.b",
			0, "3 clusters reported it, but the fleet has at most 2: some reports are forged, or clusters is wrong; 2 are behind 10.0.0.b",
		},
		"too many before a resume": {"clusters: 2", "1m a Began,1m b Began,1m c Succeeded", time.Hour, ""},
		"too many at an address": {
			"maxPerAddress: 1", "1m a Began,1m b Began 10.0.0.a",
			0, "2 clusters behind 10.0.0.a reported it, more than maxPerAddress 1",
		},
		"one address":       {"maxFailures: 1", "1m a Failed x,1m b Failed x,1m c Failed", 0, "(2 from x)"},
		"several addresses": {"maxFailures: 1", "1m a Failed,1m b Failed,1m c Failed", 0, "(from 3 addresses)"},
		"clock set back":    {"{maxFailures: 0, progressDeadline: 1h}", "50h a Began,1m b Began", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tally := tallyOf(t, phaseOf(t, test.policy), strings.Split(test.log, ",")...)
			resumed := time.Time{}
			if test.resumed > 0 {
				resumed = begin.Add(test.resumed)
			}
			got := tally.Halt(resumed, begin.Add(50*time.Hour))
			if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("halts because %q, want %q", got, test.want)
			}
		})
	}
}

func TestOtherUpdatesDoNotCount(t *testing.T) {
	p := phaseOf(t, "maxFailures: 0")
	p.From = regexp.MustCompile(`^1[.]3[.]`)
	if got := tallyOf(t, p, "1m a Failed").Halt(time.Time{}, begin); got != "" {
		t.Error(got)
	}
	p.To, p.From = "1.4.2", nil
	if got := tallyOf(t, p, "1m a Failed").Halt(time.Time{}, begin); got != "" {
		t.Error(got)
	}
}

func TestRampsBegin(t *testing.T) {
	const policy = "after: {successes: 2, for: 1h}"
	for name, test := range map[string]struct {
		policy, log string
		start, want time.Duration // since the beginning; negative for never
	}{
		"two are healthy": {policy, "10m a Succeeded +,20m b Succeeded +", 0, 80 * time.Minute},
		"start is later":  {policy, "10m a Succeeded +,20m b Succeeded +", 3 * time.Hour, 3 * time.Hour},
		"only one":        {policy, "10m a Succeeded +,11m a Succeeded +", 0, -1},
		"without a token": {policy, "10m a Succeeded +,20m b Succeeded,30m c Succeeded", 0, -1},
		"one has failed": {
			policy, "10m a Succeeded +,20m b Succeeded +,30m a Failed +,30m c Succeeded +",
			0, 90 * time.Minute,
		},
		"fails afterwards": {
			policy, "10m a Succeeded +,20m b Succeeded +,81m a Failed,82m b Failed",
			0, 80 * time.Minute,
		},
		"time without the service": {
			policy, "10m a Succeeded +,20m b Succeeded +,200m away 160m",
			0, 240 * time.Minute,
		},
		"nothing to wait for":   {"{}", "", time.Hour, time.Hour},
		"away before the start": {"{}", "30m away 10m", time.Hour, time.Hour},
		"away at the start":     {"{}", "70m away 20m", time.Hour, 70 * time.Minute},
		"away twice":            {"{}", "100m away 20m,200m away 30m", time.Hour, 110 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			if test.log != "" {
				lines = strings.Split(test.log, ",")
			}
			tally := tallyOf(t, phaseOf(t, test.policy), lines...)
			got := tally.Begin(begin.Add(test.start), begin.Add(50*time.Hour))
			if got.IsZero() != (test.want < 0) || !got.IsZero() && got != begin.Add(test.want) {
				t.Errorf("begins at %s, want %s after %s", got, test.want, begin)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `{"maxFailures": 0}`: "", `{"maxFailures": "5%", "clusters": 9}`: "",
		`{"maxFailures": "5%"}`:      "maxFailures 5% needs clusters, the number that it is a percentage of",
		`{"maxFailures": -1}`:        "maxFailures -1 is neither a number nor a percentage, such as 10 or 1%",
		`{"maxFailures": "ten"}`:     "maxFailures ten is neither a number nor a percentage, such as 10 or 1%\nmaxFailures ten needs clusters, the number that it is a percentage of",
		`{"clusters": -1}`:           "a number or a duration is negative",
		`{"progressDeadline": "1h"}`: "progressDeadline and minSuccessTime need maxFailures: 0 halts at the first failure",
		`{"after": {"for": "1h"}}`:   "after.for needs after.successes, a number of clusters",
	} {
		var p halt.Policy
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if err := p.Validate(); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// BenchmarkHalt judges 10,000 clusters of which 100 have failed.
func BenchmarkHalt(b *testing.B) {
	var p halt.Phase
	if err := yaml.Unmarshal([]byte("maxFailures: 100\nclusters: 10000\nprogressDeadline: 1h"), &p.Policy); err != nil {
		b.Fatal(err)
	}
	p.To = "1.4.1"
	tally := halt.NewTally(p)
	for i := range 10_000 {
		r := &report.Report{ID: fmt.Sprint(i), Version: "1.4.1", Condition: report.Succeeded, Time: begin}
		if i%100 == 0 {
			r.Condition = report.Failed
		}
		tally.Add(report.Entry{Received: begin, Report: r})
	}
	for b.Loop() {
		if reason := tally.Halt(time.Time{}, begin); reason != "" {
			b.Fatal(reason)
		}
	}
}
