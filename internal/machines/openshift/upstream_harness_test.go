package openshift_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// settled is the time without a change after which a moment is written again.
const settled = 10 * time.Second

// compareMoment waits until a machine has the state of a moment: a file of testdata with the facts of a machine, its
// node and pods, its events and the calls for its infrastructure, once with our controller and once with the Machine
// API operator's. Both must be equal, except for lines that a line "differs: WORDS, WORDS: reason" of the file's
// comment names by their first two words. These lines must differ.
func (s *scenario) compareMoment(moment, machine string) {
	s.Helper()
	file := transcript.Read(s, "testdata/"+moment+".txtar")
	ours := file.Files[0].Name
	if *transcript.Update {
		file.Expect(s, ours, s.settledFacts(machine))
	} else {
		s.awaitFacts(moment, machine, file.Section(ours))
	}
	s.compareWithUpstream(moment, file)
}

// awaitFacts waits until facts are as wanted.
func (s *scenario) awaitFacts(moment, machine, want string) {
	s.Helper()
	got := ""
	err := wait.PollUntilContextTimeout(s.Context(), 50*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) {
			got = s.facts(machine)
			return got == want, nil
		})
	if err != nil {
		s.Fatalf("%s: -update writes it again (-want +got):\n%s", moment, gocmp.Diff(want, got))
	}
}

func (s *scenario) settledFacts(machine string) string {
	facts, since := s.facts(machine), time.Now()
	err := wait.PollUntilContextCancel(s.Context(), settled/10, true, func(context.Context) (bool, error) {
		if now := s.facts(machine); now != facts {
			facts, since = now, time.Now()
		}
		return time.Since(since) > settled, nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return facts
}

// compareWithUpstream compares the facts of a moment that are not known to differ.
func (s *scenario) compareWithUpstream(moment string, archive *transcript.Transcript) {
	s.Helper()
	ours, theirs := factLines(archive.Files[0].Data), factLines(archive.Files[1].Data)
	for line := range strings.Lines(string(archive.Comment)) {
		words, isDifference := strings.CutPrefix(line, "differs: ")
		words, reason, hasReason := strings.Cut(words, ": ")
		if !isDifference {
			continue
		}
		for key := range strings.SplitSeq(words, ", ") {
			isIt := func(fact string) bool { return fact == key || strings.HasPrefix(fact, key+" ") }
			isNot := func(fact string) bool { return !isIt(fact) }
			differ := !slices.Equal(slices.DeleteFunc(slices.Clone(ours), isNot),
				slices.DeleteFunc(slices.Clone(theirs), isNot))
			if !differ || !hasReason || strings.TrimSpace(reason) == "" {
				s.Errorf("%s: %q does not differ, or has no reason", moment, key)
			}
			ours, theirs = slices.DeleteFunc(ours, isIt), slices.DeleteFunc(theirs, isIt)
		}
	}
	if diff := gocmp.Diff(theirs, ours); diff != "" {
		s.Errorf("%s (-upstream +ours):\n%s", moment, diff)
	}
}

// factLines splits a text into facts: a fact is a line with the indented lines after it.
func factLines(text []byte) []string {
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\n\t", "\t"), "\n"), "\n")
}

// facts returns the visible state of a machine, one fact per line. The message of a condition or an event is in the
// next line.
func (s *scenario) facts(name string) string {
	s.Helper()
	out := &strings.Builder{}
	m := &machinev1beta1.Machine{}
	err := s.Get(s.Context(), s.Key(name), m)
	switch {
	case apierrors.IsNotFound(err):
		fmt.Fprintln(out, "machine gone")
	case err != nil:
		s.Fatal(err)
	default:
		writeMachine(out, m)
	}
	s.writeNodes(out)
	s.writeCalls(out, name)
	s.writeEvents(out, name)
	return strings.NewReplacer(s.Namespace+"-", "", s.Namespace, "demo").Replace(out.String())
}

func writeMachine(out *strings.Builder, m *machinev1beta1.Machine) {
	fmt.Fprintf(out, "phase %s\n", ptr.Deref(m.Status.Phase, ""))
	for _, finalizer := range m.Finalizers {
		fmt.Fprintf(out, "finalizer %s\n", finalizer)
	}
	for _, hook := range m.Spec.LifecycleHooks.PreDrain {
		fmt.Fprintf(out, "preDrain %s %s\n", hook.Name, hook.Owner)
	}
	for _, hook := range m.Spec.LifecycleHooks.PreTerminate {
		fmt.Fprintf(out, "preTerminate %s %s\n", hook.Name, hook.Owner)
	}
	for _, c := range m.Status.Conditions {
		fmt.Fprintln(out,
			strings.TrimRight(fmt.Sprintf("condition %s %s %s %s", c.Type, c.Status, c.Severity, c.Reason), " "))
		if c.Message != "" {
			fmt.Fprintf(out, "\t%s\n", c.Message)
		}
	}
	if m.Status.ErrorReason != nil || m.Status.ErrorMessage != nil {
		fmt.Fprintf(out, "error %s %s\n", ptr.Deref(m.Status.ErrorReason, ""), ptr.Deref(m.Status.ErrorMessage, ""))
	}
}

// writeNodes writes the nodes of the scenario, and the pods on them.
func (s *scenario) writeNodes(out *strings.Builder) {
	s.Helper()
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, err := range []error{s.List(s.Context(), &nodes),
		s.List(s.Context(), &pods, client.InNamespace(s.Namespace))} {
		if err != nil {
			s.Fatal(err)
		}
	}
	state := func(words string, got bool) string {
		if got {
			return words
		}
		return ""
	}
	for _, node := range nodes.Items {
		if strings.HasPrefix(node.Name, s.Namespace+"-") {
			fmt.Fprintf(out, "node %s%s\n", node.Name, state(" cordoned", node.Spec.Unschedulable))
		}
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(out, "pod %s %s%s\n", pod.Name, pod.Spec.NodeName, state(" ending", pod.DeletionTimestamp != nil))
	}
}

// writeCalls writes the calls that change a machine's infrastructure, and the first read that finds it deleted.
func (s *scenario) writeCalls(out *strings.Builder, name string) {
	isRequested := false
	for _, call := range s.provider.callsOf("") {
		switch {
		case call.machine != name:
		case call.verb == "create", call.verb == "delete":
			fmt.Fprintf(out, "call %s\n", call.verb)
			isRequested = call.verb == "delete"
		case isRequested && call.isGone:
			fmt.Fprintln(out, "call exists: no")
			isRequested = false
		}
	}
}

// writeEvents writes the events of a machine as often as they were reported.
func (s *scenario) writeEvents(out *strings.Builder, name string) {
	s.Helper()
	var list eventsv1.EventList
	s.MustList(&list)
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), strings.Compare(a.Name, b.Name))
	})
	for _, event := range list.Items {
		if event.Regarding.Name != name || event.Regarding.Kind != "Machine" {
			continue
		}
		if strings.Contains(event.Note, "The disruption budget") {
			continue // the API server's words: the budget was deleted after the eviction and before it was read
		}
		line := fmt.Sprintf("event %s %s %s\n\t%s\n", event.Reason, event.Type, event.Action, event.Note)
		times := 1
		if event.Series != nil {
			times = int(event.Series.Count)
		}
		out.WriteString(strings.Repeat(line, times))
	}
}
