package machineset

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

var noon = time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)

// TestPlans reads testdata/*.txtar. "machines" has a line "NAME AGE WORD…" for each machine; without other words, it
// is selected and controlled by the set, and has a node. "plan" follows, for each number of replicas from "wanted".
func TestPlans(t *testing.T) {
	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		file.Expect(t, "plan", string(plans(t, file.Section("wanted"), readReplicas(t, file.Section("machines")))))
	})
}

// plans returns what is planned for each line "POLICY REPLICAS".
func plans(t *testing.T, lines string, machines []replica) []byte {
	var out []byte
	for line := range strings.Lines(lines) {
		var policy deletePolicy
		var wanted int
		if _, err := fmt.Sscan(line, &policy, &wanted); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		p := makePlan(wanted, policy, machines, noon)
		out = fmt.Appendf(out, "%s %d:", policy, wanted)
		for _, part := range []struct {
			does  string
			names []string
		}{{"release", p.Release}, {"adopt", p.Adopt}, {"delete", p.Remove}} {
			if len(part.names) > 0 {
				out = fmt.Appendf(out, " %s %s;", part.does, strings.Join(part.names, ", "))
			}
		}
		if p.Create > 0 {
			out = fmt.Appendf(out, " create %d;", p.Create)
		}
		if p.IsEmpty() {
			out = append(out, " nothing"...)
		}
		out = append(out, '\n')
	}
	return out
}

func readReplicas(t *testing.T, text string) []replica {
	var machines []replica
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		m := replica{Replica: replicas.Replica{Name: words[0], Owner: replicas.Ours, IsSelected: true}, hasNode: true}
		if words[1] != "unknown" {
			age, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			m.created = noon.Add(-age)
		}
		for _, word := range words[2:] {
			switch word {
			case "deleting":
				m.IsDeleting = true
			case "marked":
				m.IsMarked = true
			case "failed":
				m.isFailed = true
			case "nodeless":
				m.hasNode = false
			case "unselected":
				m.IsSelected = false
			case "orphan", "foreign":
				m.Owner = replicas.Ownership(word)
			default:
				t.Fatalf("unknown word %q", word)
			}
		}
		machines = append(machines, m)
	}
	return machines
}

// The figures are OpenShift's.
func TestPriorities(t *testing.T) {
	const day = 24 * time.Hour
	at := func(age time.Duration) replica { return replica{created: noon.Add(-age), hasNode: true} }
	oldest, newest := machinev1beta1.OldestMachineSetDeletePolicy, machinev1beta1.NewestMachineSetDeletePolicy
	for name, c := range map[string]struct {
		machine replica
		policy  deletePolicy
		want    float64
	}{
		"no policy, with a node":    {at(day), "", 20},
		"random, with a node":       {at(day), "Random", 20},
		"random, without a node":    {replica{}, "Random", 40},
		"random, marked":            {replica{Replica: replicas.Replica{IsMarked: true}}, "Random", 50},
		"random, failed":            {replica{isFailed: true}, "Random", 50},
		"oldest, marked":            {replica{Replica: replicas.Replica{IsMarked: true}}, oldest, 100},
		"newest, failed":            {replica{isFailed: true}, newest, 100},
		"oldest, of this moment":    {at(0), oldest, 0},
		"oldest, of the future":     {at(-day), oldest, 0},
		"oldest, of an unknown age": {replica{}, oldest, 0},
		"oldest, 100 days":          {at(100 * day), oldest, 50 * (1 - 1/math.E)},
		"oldest, 50 days":           {at(50 * day), oldest, 50 * (1 - math.Exp(-0.5))},
		"newest, 100 days":          {at(100 * day), newest, 50 + 50/math.E},
		"newest, of the future":     {at(-day), newest, 100},
		"newest, ten years":         {at(3650 * day), newest, 50},
	} {
		if got := priority(c.machine, c.policy, noon); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

func TestCount(t *testing.T) {
	ready := func(age time.Duration) member {
		return member{isFullyLabeled: true, node: readiness{isReady: true, since: noon.Add(-age)}}
	}
	members := []member{
		{}, {isFullyLabeled: true}, ready(time.Hour), ready(time.Minute), ready(2 * time.Minute), ready(-time.Minute),
		{node: readiness{isReady: true}}, // it is not known since when
	}
	for minReady, want := range map[time.Duration]tally{
		0:               {replicas: 7, fullyLabeled: 5, ready: 5, available: 5},
		time.Minute:     {replicas: 7, fullyLabeled: 5, ready: 5, available: 3, after: 2 * time.Minute},
		3 * time.Minute: {replicas: 7, fullyLabeled: 5, ready: 5, available: 1, after: time.Minute},
	} {
		if got := count(members, minReady, noon); got != want {
			t.Errorf("ready for %s: %+v, not %+v", minReady, got, want)
		}
	}
}

func BenchmarkPlanOf5000Machines(b *testing.B) {
	machines := make([]replica, 5000)
	for i := range machines {
		machines[i] = replica{
			Replica: replicas.Replica{
				Name: fmt.Sprintf("web-%d", i*7919%5000), Owner: replicas.Ours, IsSelected: true, IsMarked: i%100 == 0,
			},
			created: noon.Add(-time.Duration(i) * time.Minute), hasNode: i%10 > 0,
		}
	}
	for _, policy := range []deletePolicy{"Random", "Oldest"} {
		for _, wanted := range []int{5000, 4999, 10} {
			b.Run(fmt.Sprintf("%s/%d", policy, wanted), func(b *testing.B) {
				for b.Loop() {
					makePlan(wanted, policy, machines, noon)
				}
			})
		}
	}
}
