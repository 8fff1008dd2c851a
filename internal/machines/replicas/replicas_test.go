package replicas_test

import (
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// machine reads "NAME WORD…"; without words, it is selected and controlled by the set.
func machine(text string) replicas.Replica {
	words := strings.Fields(text)
	m := replicas.Replica{Name: words[0], Owner: replicas.Ours, IsSelected: true, Priority: 20}
	for _, word := range words[1:] {
		switch word {
		case "deleting":
			m.IsDeleting = true
		case "marked":
			m.IsMarked = true
		case "urgent":
			m.Priority = 80
		case "unselected":
			m.IsSelected = false
		default:
			m.Owner = replicas.Ownership(word)
		}
	}
	return m
}

func TestPlans(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wanted   int
		machines []string
		want     replicas.Plan
	}{
		"nothing is missing": {2, []string{"a", "b"}, replicas.Plan{}},
		"some are missing":   {3, []string{"a"}, replicas.Plan{Create: 2}},
		"the first by name go": {1, []string{"c", "a", "b"},
			replicas.Plan{Remove: []string{"a", "b"}}},
		"a higher rank goes first": {2, []string{"a", "b", "c urgent"}, replicas.Plan{Remove: []string{"c"}}},
		"of equal machines, a marked one is removed": {1, []string{"a", "b marked"},
			replicas.Plan{Remove: []string{"b"}}},
		"a machine counts during its deletion": {2, []string{"a", "b deleting"}, replicas.Plan{}},
		"deletions come first":                 {1, []string{"a urgent", "b deleting"}, replicas.Plan{}},
		"more are spared than are being deleted": {0, []string{"a", "b deleting"},
			replicas.Plan{Remove: []string{"a"}}},
		"orphans are adopted":            {2, []string{"a", "b orphan"}, replicas.Plan{Adopt: []string{"b"}}},
		"orphans that go are left alone": {2, []string{"a", "b orphan deleting"}, replicas.Plan{Create: 1}},
		"those of others are left alone": {1, []string{"a", "b foreign"}, replicas.Plan{}},
		"a machine with other labels is " +
			"released": {1, []string{"a", "b unselected"}, replicas.Plan{Release: []string{"b"}}},
		"a deletion needs no release":               {1, []string{"a", "b unselected deleting"}, replicas.Plan{}},
		"an orphan with other labels is left alone": {1, []string{"a", "b unselected orphan"}, replicas.Plan{}},
	} {
		var machines []replicas.Replica
		for _, text := range c.machines {
			machines = append(machines, machine(text))
		}
		if diff := cmp.Diff(c.want, replicas.Make(c.wanted, machines)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPriorityByAge(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]float64{0: 0, -time.Hour: 0, time.Hour: 50 * (1 - 1/math.E)} {
		if got := replicas.PriorityByAge(noon.Add(-age), noon, time.Hour); math.Abs(got-want) > 1e-9 {
			t.Errorf("after %s: %v, not %v", age, got, want)
		}
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"a": "b"}
	for want, selector := range map[string]*metav1.LabelSelector{
		"":                       {MatchLabels: labels},
		"spec.selector is empty": {},
		"spec.selector is not valid": {
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}},
		},
		`spec.selector "a=c" does not match the labels in spec.template.metadata.labels: "a=b"`: {
			MatchLabels: map[string]string{"a": "c"},
		},
	} {
		_, err := replicas.SelectorOf(selector, labels)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v: %v, not %q", selector, err, want)
		}
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	refusal := errors.New("refused")
	done, err := replicas.InBatches(100, 20, func() error {
		if tries.Add(1) > 1 {
			return refusal
		}
		return nil
	})
	if done != 1 || !errors.Is(err, refusal) || tries.Load() != 3 {
		t.Errorf("got %d done, error %v, %d tries, want 1, the refusal, 3", done, err, tries.Load())
	}
	if done, err := replicas.InBatches(100, 20, func() error { return nil }); done != 100 || err != nil {
		t.Errorf("got %d done, error %v, want 100, none", done, err)
	}
}
