package machineset

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/replicas"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

var noon = time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)

// TestPlans reads testdata/*.txtar. "machines" has a line "NAME AGE WORD…" for each machine; without other words, it
// is selected and controlled by the set, and has a node. "plan" follows, for each number of replicas from "wanted".
func TestPlans(t *testing.T) {
	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
		file.Expect(t, "plan", string(plans(t, file.Section("wanted"), readMachines(t, file.Section("machines")))))
	})
}

// plans returns the plan for each line "POLICY REPLICAS".
func plans(t *testing.T, lines string, seen *setSnapshot) []byte {
	var out []byte
	for line := range strings.Lines(lines) {
		var policy deletePolicy
		var wanted int
		if _, err := fmt.Sscan(line, &policy, &wanted); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen.set.Spec.DeletePolicy, seen.set.Spec.Replicas = string(policy), ptr.To(int32(wanted))
		p := seen.plan(noon)
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

func readMachines(t *testing.T, text string) *setSnapshot {
	seen := &setSnapshot{set: &machinev1beta1.MachineSet{}, machines: map[string]*machinev1beta1.Machine{}}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: words[0], Annotations: map[string]string{}}}
		m.Status.NodeRef = &corev1.ObjectReference{}
		if words[1] != "unknown" {
			age, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			m.CreationTimestamp = metav1.NewTime(noon.Add(-age))
		}
		owner, selector := replicas.Ours, labels.Everything()
		for _, word := range words[2:] {
			switch word {
			case "deleting":
				m.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
			case "marked":
				m.Annotations[deleteAnnotation] = "yes"
			case "failed":
				m.Status.ErrorMessage = ptr.To("failed")
			case "nodeless":
				m.Status.NodeRef = nil
			case "unselected":
				selector = labels.Nothing()
			case "orphan", "foreign":
				owner = replicas.Ownership(word)
			default:
				t.Fatalf("unknown word %q", word)
			}
		}
		replica := newReplica(seen.set, selector, m)
		replica.Owner = owner
		seen.machines[m.Name], seen.replicas = m, append(seen.replicas, replica)
	}
	return seen
}

// The figures are OpenShift's.
func TestPriorities(t *testing.T) {
	const day = 24 * time.Hour
	build := func(age time.Duration) *machinev1beta1.Machine {
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		m.Status.NodeRef = &corev1.ObjectReference{}
		return m
	}
	marked := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{legacyDeleteAnnotation: "yes"}},
	}
	failed, unknown := &machinev1beta1.Machine{}, &machinev1beta1.Machine{}
	failed.Status.ErrorReason = ptr.To(machinev1beta1.InvalidConfigurationMachineError)
	oldest, newest := machinev1beta1.OldestMachineSetDeletePolicy, machinev1beta1.NewestMachineSetDeletePolicy
	for name, c := range map[string]struct {
		machine *machinev1beta1.Machine
		policy  deletePolicy
		want    float64
	}{
		"no policy, with a node":    {build(day), "", 20},
		"random, with a node":       {build(day), "Random", 20},
		"random, without a node":    {unknown, "Random", 40},
		"random, marked":            {marked, "Random", 50},
		"random, failed":            {failed, "Random", 50},
		"oldest, marked":            {marked, oldest, 100},
		"newest, failed":            {failed, newest, 100},
		"oldest, of this moment":    {build(0), oldest, 0},
		"oldest, of the future":     {build(-day), oldest, 0},
		"oldest, of an unknown age": {unknown, oldest, 0},
		"oldest, 100 days":          {build(100 * day), oldest, 50 * (1 - 1/math.E)},
		"oldest, 50 days":           {build(50 * day), oldest, 50 * (1 - math.Exp(-0.5))},
		"newest, 100 days":          {build(100 * day), newest, 50 + 50/math.E},
		"newest, of the future":     {build(-day), newest, 100},
		"newest, ten years":         {build(3650 * day), newest, 50},
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
	type counts struct {
		fullyLabeled, ready, available int32
		after                          time.Duration
	}
	for minReady, want := range map[time.Duration]counts{
		0:               {fullyLabeled: 5, ready: 5, available: 5},
		time.Minute:     {fullyLabeled: 5, ready: 5, available: 3, after: 2 * time.Minute},
		3 * time.Minute: {fullyLabeled: 5, ready: 5, available: 1, after: time.Minute},
	} {
		var s machinev1beta1.MachineSetStatus
		after := count(&s, members, minReady, noon)
		if got := (counts{s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas, after}); got != want ||
			s.Replicas != 7 {
			t.Errorf("ready for %s: %d replicas, %+v, not 7, %+v", minReady, s.Replicas, got, want)
		}
	}
}

func BenchmarkPlanOf5000Machines(b *testing.B) {
	seen := &setSnapshot{set: &machinev1beta1.MachineSet{}, machines: map[string]*machinev1beta1.Machine{}}
	for i := range 5000 {
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("web-%d", i*7919%5000),
			CreationTimestamp: metav1.NewTime(noon.Add(-time.Duration(i) * time.Minute)),
		}}
		if i%10 > 0 {
			m.Status.NodeRef = &corev1.ObjectReference{}
		}
		if i%100 == 0 {
			m.Annotations = map[string]string{deleteAnnotation: "yes"}
		}
		replica := newReplica(seen.set, labels.Everything(), m)
		replica.Owner = replicas.Ours
		seen.machines[m.Name], seen.replicas = m, append(seen.replicas, replica)
	}
	for _, policy := range []deletePolicy{"Random", "Oldest"} {
		for _, wanted := range []int{5000, 4999, 10} {
			b.Run(fmt.Sprintf("%s/%d", policy, wanted), func(b *testing.B) {
				seen.set.Spec.DeletePolicy, seen.set.Spec.Replicas = string(policy), ptr.To(int32(wanted))
				for b.Loop() {
					seen.plan(noon)
				}
			})
		}
	}
}
