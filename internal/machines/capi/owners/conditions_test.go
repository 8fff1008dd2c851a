package owners

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
)

var noon = time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)

// newMachine reads "NAME WORD…", where a word is a condition, with "!" before it if it is False, or another state.
func newMachine(text string) *clusterv1.Machine {
	words := strings.Fields(text)
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: words[0], CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Annotations: map[string]string{},
	}}
	m.Status.NodeRef.Name = "node"
	for _, word := range words[1:] {
		name, isFalse := strings.CutPrefix(word, "!")
		switch name {
		case "new":
			m.CreationTimestamp = metav1.NewTime(noon)
		case "nodeless":
			m.Status.NodeRef.Name = ""
		case "marked":
			m.Annotations[clusterv1.DeleteMachineAnnotation] = ""
		case "updating":
			m.Annotations[clusterv1.UpdateInProgressAnnotation] = ""
		case "stuck":
			m.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Hour)}
		default:
			condition := metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: name}
			if isFalse {
				condition.Status, condition.Message = metav1.ConditionFalse, "* "+name+" is not so"
			}
			m.Status.Conditions = append(m.Status.Conditions, condition)
		}
	}
	return m
}

func newMachines(texts ...string) []*clusterv1.Machine {
	var machines []*clusterv1.Machine
	for _, text := range texts {
		machines = append(machines, newMachine(text))
	}
	return machines
}

// summarize returns the conditions that summarize the machines of an owner with 1 wanted replica.
func summarize(machines []*clusterv1.Machine) map[string]metav1.Condition {
	set := &clusterv1.MachineSet{}
	SetSummary(set, Summary{Machines: machines, Current: len(machines), Wanted: 1, Now: noon})
	byType := map[string]metav1.Condition{}
	for _, condition := range set.Status.Conditions {
		condition.LastTransitionTime = metav1.Time{}
		byType[condition.Type] = condition
	}
	return byType
}

func TestSummaryOfReadyConditions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machines []string
		want     metav1.Condition
	}{
		"no machines":   {nil, metav1.Condition{Status: "True", Reason: "NoReplicas"}},
		"all are ready": {[]string{"a Ready", "b Ready"}, metav1.Condition{Status: "True", Reason: "Ready"}},
		"one is unknown": {[]string{"a Ready", "b"}, metav1.Condition{
			Status:  "Unknown",
			Reason:  "ReadyUnknown",
			Message: "* Machine b: Condition Ready not yet reported",
		}},
		"one is not": {[]string{"a", "b !Ready"}, metav1.Condition{Status: "False", Reason: "NotReady",
			Message: "* Machine b:\n  * Ready is not so\n* Machine a: Condition Ready not yet reported"}},
		"many are not": {[]string{"a !Ready", "b !Ready", "c !Ready", "d !Ready", "e Ready"},
			metav1.Condition{Status: "False", Reason: "NotReady",
				Message: "* Machines a, b, c, ... (1 more):\n  * Ready is not so"}},
	} {
		c.want.Type = "MachinesReady"
		if diff := cmp.Diff(c.want, summarize(newMachines(c.machines...))[c.want.Type]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSummaryOfUpToDateConditions(t *testing.T) {
	t.Parallel()
	for want, machines := range map[metav1.ConditionStatus][]string{
		metav1.ConditionTrue:    {"a new", "b UpToDate"}, // a may not have the condition yet
		metav1.ConditionUnknown: {"a", "b UpToDate"},
	} {
		got := summarize(newMachines(machines...))[clusterv1.MachinesUpToDateCondition]
		if got.Status != want {
			t.Errorf("%q: status %s, want %s", machines, got.Status, want)
		}
	}
}

// TestSummaryOrdersMessagesByNumberOfMachines: the most frequent message comes first, as in Cluster API.
func TestSummaryOrdersMessagesByNumberOfMachines(t *testing.T) {
	t.Parallel()
	machines := newMachines("a !Ready", "b !Ready", "c !Ready", "d")
	machines[0].Status.Conditions[0].Message = "A reason"
	const want = "* Machines b, c:\n  * Ready is not so\n* Machine a: A reason\n* Machine d: Condition Ready not yet " +
		"reported"
	if got := summarize(machines)[clusterv1.MachinesReadyCondition].Message; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	all, ready, available, upToDate := Count(newMachines("a", "b Ready", "c Ready Available UpToDate",
		"d Ready Available UpToDate updating", "e !Ready UpToDate"))
	numbers := []int32{*all, *ready, *available, *upToDate}
	if diff := cmp.Diff([]int32{5, 2, 1, 2}, numbers); diff != "" {
		t.Errorf("replicas, ready, available, up to date (-want +got):\n%s", diff)
	}
}

func TestScalingDownNamesLongDeletions(t *testing.T) {
	t.Parallel()
	got := summarize(newMachines("a", "b stuck", "c stuck"))[clusterv1.ScalingDownCondition]
	const want = "Scaling down from 3 to 1 replicas\n* Machines b, c in deletion for more than 15m: see their " +
		"condition Deleting"
	if got.Message != want || got.Status != metav1.ConditionTrue {
		t.Errorf("got %s %q, want True %q", got.Status, got.Message, want)
	}
}

func TestRemediatedNamesUnhealthyMachines(t *testing.T) {
	t.Parallel()
	for want, machines := range map[string][]string{
		"": {"a HealthCheckSucceeded", "b"},
		"Machine b is not healthy (not to be remediated by " +
			"MachineSet)": {"a HealthCheckSucceeded", "b !HealthCheckSucceeded"},
		"Machines a, b are not healthy (not to be remediated by " +
			"MachineSet)": {"a !HealthCheckSucceeded", "b !HealthCheckSucceeded"},
		"Machines a, b, c, ... (1 more) are not healthy (not to be remediated by MachineSet)": {
			"a !HealthCheckSucceeded", "b !HealthCheckSucceeded", "c !HealthCheckSucceeded", "d !HealthCheckSucceeded"},
	} {
		got := Remediated(newMachines(machines...), "MachineSet")
		if got.Message != want || got.Status != metav1.ConditionFalse || got.Reason != "NotRemediating" ||
			got.Type != "Remediating" {
			t.Errorf("%q: got %+v, want NotRemediating %q", machines, got, want)
		}
	}
	got := Remediated(newMachines("a !HealthCheckSucceeded !OwnerRemediated", "b !HealthCheckSucceeded",
		"c !OwnerRemediated"), "MachineSet")
	const want = "* Machine a:\n  * OwnerRemediated is not so"
	if got.Message != want || got.Status != metav1.ConditionTrue || got.Reason != "Remediating" {
		t.Errorf("got %+v, want True Remediating %q", got, want)
	}
}

// TestDeletionPriority has the figures of Cluster API.
func TestDeletionPriority(t *testing.T) {
	t.Parallel()
	const oldest, newest = clusterv1.OldestMachineSetDeletionOrder, clusterv1.NewestMachineSetDeletionOrder
	for text, want := range map[string]map[clusterv1.MachineSetDeletionOrder]float64{
		"a":                       {"": 20, "Random": 20},
		"a new":                   {"": 20, oldest: 0, newest: 50},
		"a nodeless":              {"": 50, oldest: 50, newest: 50},
		"a !NodeHealthy":          {"": 50, oldest: 50},
		"a !HealthCheckSucceeded": {"": 50},
		"a NodeHealthy":           {"": 20},
		"a updating nodeless":     {"": 75, oldest: 75},
		"a marked updating":       {"": 80, newest: 80},
	} {
		for order, want := range want {
			if got := rolloutrules.DeletionPriority(newMachine(text), order, noon); got != want {
				t.Errorf("%s, %q: priority %v, want %v", text, order, got, want)
			}
		}
	}
	old := newMachine("a")
	old.CreationTimestamp = metav1.NewTime(noon.Add(-10 * 24 * time.Hour))
	if got := rolloutrules.DeletionPriority(old, oldest, noon); got < 31.5 || got > 31.7 {
		t.Errorf("after ten days: priority %v, want 31.6", got)
	}
}
