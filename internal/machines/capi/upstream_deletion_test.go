//lint:file-ignore SA1019 the deprecated conditions are compared as well

package capi_test

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// TestMomentsOfADeletion compares the displayed states of a Machine, line by line, with those that Cluster API's own
// core controller (1.14.2) displayed, which are recorded in testdata/moments. A line "differs: BEGINNING: reason" in
// the comment of a file names lines that must differ, and that only our controller displays.
func TestMomentsOfADeletion(t *testing.T) {
	s := newScene(t)
	m := s.machine("m1")
	m.Annotations = map[string]string{
		preDrain + "a":     "owner-a",
		preDrain + "b":     "owner-b",
		preTerminate + "x": "owner-x",
	}
	m, node := s.run(m, held)
	web := s.addPod(node, "web", func(p *corev1.Pod) { p.Finalizers = []string{held} })
	db := s.addPod(node, "db", func(p *corev1.Pod) { p.Finalizers = []string{held} })
	budget := s.AddBudget("db", "db")
	s.expectMoment("01-running")
	s.MustDelete(m)
	s.expectMoment("02-pre-drain")
	s.removeHook(m, preDrain+"a")
	s.expectMoment("03-pre-drain-one")
	s.removeHook(m, preDrain+"b")
	s.expectMoment("04-draining-pdb")
	s.MustPatch(web, `{"metadata": {"finalizers": null}}`)
	s.expectMoment("05-draining-pdb-later")
	s.MustDelete(budget)
	s.expectMoment("06-pre-terminate")
	s.MustPatch(m, `{"metadata": {"annotations": {"`+preDrain+`late": "late"}}}`)
	s.expectMoment("07-late-pre-drain")
	s.removeHook(m, preDrain+"late")
	s.MustPatch(db, `{"metadata": {"finalizers": null}}`)
	s.awaitDeleting("WaitingForPreTerminateHook", "")
	s.removeHook(m, preTerminate+"x")
	s.expectMoment("08-infrastructure")
	s.MustPatch(s.infrastructure(), `{"metadata": {"finalizers": null}}`)
	s.expectMoment("09-gone")
}

func TestMomentOfAMachineWithoutANode(t *testing.T) {
	s := newScene(t)
	s.addInfrastructure("m1")
	s.MustCreate(s.machine("m1"))
	s.expectMoment("12-no-node")
}

// TestMomentOfADrainByRules is B5 as well: skipped pods stay, and pods of a higher order wait.
func TestMomentOfADrainByRules(t *testing.T) {
	s := newScene(t)
	s.addRule("logs", clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorSkip})
	s.addRule("db3", clusterv1.MachineDrainRuleDrainConfig{
		Behavior: clusterv1.MachineDrainRuleDrainBehaviorDrain, Order: ptr.To(int32(10)),
	})
	s.addRule("batch",
		clusterv1.MachineDrainRuleDrainConfig{Behavior: clusterv1.MachineDrainRuleDrainBehaviorWaitCompleted})
	m, node := s.runs()
	var web []*corev1.Pod
	for _, name := range []string{"web3-dhw48", "web3-nml66", "web3-pm6sq", "web3-q1", "web3-q2"} {
		web = append(web, s.addPod(node, name, func(p *corev1.Pod) { p.Finalizers = []string{held} }))
	}
	logs := s.addPod(node, "logs", nil)
	labelled := s.addPod(node, "labelled", func(p *corev1.Pod) { p.Labels[clusterv1.PodDrainLabel] = "skip" })
	last, batch := s.addPod(node, "db3", nil), s.addPod(node, "batch", nil)
	s.MustDelete(m)
	s.expectMoment("14-drain-rules")
	for _, pod := range web {
		s.MustPatch(pod, `{"metadata": {"finalizers": null}}`)
	}
	s.awaitDeleting("DrainingNode",
		"\n* Pod "+s.Namespace+"/batch: waiting for completion\nAfter above Pods have been removed")
	s.MustDelete(batch)
	s.AwaitGone(last)
	s.AwaitGone(m)
	for _, pod := range []*corev1.Pod{logs, labelled} {
		if err := s.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
			t.Errorf("pod %s is not skipped: %v", pod.Name, err)
		}
	}
}

// addRule creates a drain rule for the pods of a name in this namespace.
func (s *scene) addRule(app string, config clusterv1.MachineDrainRuleDrainConfig) {
	s.Helper()
	selects := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	s.MustCreate(&clusterv1.MachineDrainRule{
		ObjectMeta: s.Meta(app),
		Spec: clusterv1.MachineDrainRuleSpec{
			Drain:    config,
			Machines: []clusterv1.MachineDrainRuleMachineSelector{{Selector: selects(clusterv1.ClusterNameLabel, "c")}},
			Pods: []clusterv1.MachineDrainRulePodSelector{{
				Selector: selects("app", app), NamespaceSelector: selects("kubernetes.io/metadata.name", s.Namespace),
			}},
		},
	})
}

// expectMoment waits until all lines are as upstream's, but for those that are known to differ.
func (s *scene) expectMoment(moment string) {
	s.Helper()
	archive := transcript.Read(s, "testdata/moments/"+moment+".txtar")
	var different []string
	for line := range strings.Lines(string(archive.Comment)) {
		if rest, ok := strings.CutPrefix(line, "differs: "); ok {
			beginning, _, _ := strings.Cut(rest, ": ")
			different = append(different, beginning)
		}
	}
	upstream := strings.TrimRight(string(archive.Files[0].Data), "\n")
	got := ""
	err := wait.PollUntilContextTimeout(s.Context(), 100*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) {
			got = s.facts()
			return without(got, different) == without(upstream, different), nil
		})
	if err != nil {
		s.Fatalf("%s (-upstream +ours):\n%s", moment, gocmp.Diff(without(upstream, different), without(got, different)))
	}
	for _, beginning := range different {
		if only(got, beginning) == only(upstream, beginning) {
			s.Errorf("%s: %q does not differ", moment, beginning)
		}
	}
}

// without returns a text without the lines that begin so.
func without(text string, beginnings []string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(line, b) })
	}), "\n")
}

// only returns the lines of a text that begin so.
func only(text, beginning string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, beginning)
	}), "\n")
}

var aTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// facts returns the displayed state of the machine and its events. If the machine does not exist, it has kubectl's
// message.
func (s *scene) facts() string {
	s.Helper()
	var lines []string
	m := &clusterv1.Machine{}
	err := s.Get(s.Context(), s.Key("m1"), m)
	switch {
	case apierrors.IsNotFound(err):
		lines = []string{"Error from server (NotFound): " + err.Error()}
	case err != nil:
		s.Fatal(err)
	default:
		lines = statusLines(m)
	}
	lines = append(lines, s.events()...)
	for i, line := range lines {
		line = aTime.ReplaceAllString(line, "TIME")
		line = strings.ReplaceAll(line, s.providerID("m1"), "PROVIDERID")
		line = strings.ReplaceAll(line, s.Namespace+"-m1", "node-1")
		lines[i] = strings.TrimRight(strings.ReplaceAll(line, s.Namespace+"/", "demo/"), " ")
	}
	return strings.Join(lines, "\n")
}

// statusLines returns the lines of a machine's status.
func statusLines(m *clusterv1.Machine) []string {
	lines := []string{"phase: " + m.Status.Phase, "finalizers: " + strings.Join(m.Finalizers, ","),
		"deletion: " + strings.Join(started(m), ",")}
	conditions := slices.SortedFunc(slices.Values(m.Status.Conditions), func(a, b metav1.Condition) int {
		return strings.Compare(a.Type, b.Type)
	})
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	lines = append(lines, "deprecated:")
	if m.Status.Deprecated != nil && m.Status.Deprecated.V1Beta1 != nil {
		legacy := slices.SortedFunc(slices.Values(m.Status.Deprecated.V1Beta1.Conditions),
			func(a, b clusterv1.Condition) int {
				return strings.Compare(string(a.Type), string(b.Type))
			})
		for _, c := range legacy {
			words := strings.Join(slices.DeleteFunc([]string{string(c.Severity), c.Reason}, func(w string) bool {
				return w == ""
			}), " ")
			lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, words, c.Message))
		}
	}
	return lines
}

// started returns the stages whose start is recorded.
func started(m *clusterv1.Machine) []string {
	var names []string
	deletion := ptr.Deref(m.Status.Deletion, clusterv1.MachineDeletionStatus{})
	for _, stage := range []struct {
		name string
		at   metav1.Time
	}{
		{"nodeDrainStartTime", deletion.NodeDrainStartTime},
		{"waitForNodeVolumeDetachStartTime", deletion.WaitForNodeVolumeDetachStartTime},
		{"waitForPreDrainHookStartTime", deletion.WaitForPreDrainHookStartTime},
		{"waitForPreTerminateHookStartTime", deletion.WaitForPreTerminateHookStartTime},
	} {
		if !stage.at.IsZero() {
			names = append(names, stage.name)
		}
	}
	return names
}

// events returns the events of the machine in their order.
func (s *scene) events() []string {
	s.Helper()
	var list eventsv1.EventList
	s.MustList(&list)
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), strings.Compare(a.Name, b.Name))
	})
	var lines []string
	for _, event := range list.Items {
		if event.Regarding.Name == "m1" {
			lines = append(lines, fmt.Sprintf("event %s %s %s", event.Type, event.Reason, event.Note))
		}
	}
	return lines
}
