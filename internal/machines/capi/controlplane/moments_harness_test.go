package controlplane_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/transcript"
)

// A momentScene is a control plane whose moments are compared with those of a KubeadmControlPlane. A moment consists of
// the state of the control plane and of its first machine, their events, and the writes for that machine since the last
// moment.
type momentScene struct {
	*fixture
	first string // the machine

	mu     sync.Mutex
	others map[string]bool // names of machines
	seen   []watch.Event   // events of machines and their objects
	from   int64           // the resourceVersion of the last moment
}

// record begins to watch machines and their objects.
func (s *momentScene) record() {
	s.Helper()
	s.others = map[string]bool{}
	c, err := client.NewWithWatch(stage.Sandbox(s).Config, client.Options{Scheme: machinetest.NewScheme(s)})
	s.Must(err)
	for _, kind := range []string{"KwokMachine", "KwokConfig", "Machine"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind + "List"))
		if kind == "Machine" {
			list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineList"))
		}
		events, err := c.Watch(s.Context(), list, client.InNamespace(s.Namespace))
		s.Must(err)
		s.Cleanup(events.Stop)
		go func() {
			for event := range events.ResultChan() {
				s.mu.Lock()
				s.seen = append(s.seen, event)
				s.mu.Unlock()
			}
		}()
	}
}

// expectMoment waits until users see the facts that a KubeadmControlPlane of Cluster API 1.14.2 showed at that moment,
// which are in testdata/moments.
func (s *momentScene) expectMoment(moment string) {
	s.Helper()
	file := transcript.Read(s, "testdata/moments/"+moment+".txtar")
	var different []string
	for line := range strings.Lines(string(file.Comment)) {
		words, isDifference := strings.CutPrefix(line, "differs: ")
		if words, _, hasReason := strings.Cut(words, ": "); isDifference && hasReason {
			different = append(different, strings.Split(words, ", ")...)
		}
	}
	differs := func(fact string) bool {
		return slices.ContainsFunc(different, func(beginning string) bool { return strings.HasPrefix(fact, beginning) })
	}
	upstream := factsOf(file.Section("upstream"))
	var got []string
	err := wait.PollUntilContextTimeout(s.Context(), time.Second/10, 2*time.Minute, true,
		func(context.Context) (bool, error) {
			got = factsOf(s.facts())
			return slices.Equal(slices.DeleteFunc(slices.Clone(got), differs),
				slices.DeleteFunc(slices.Clone(upstream), differs)), nil
		})
	if err != nil {
		s.Fatalf("%s (-upstream +ours):\n%s", moment, gocmp.Diff(upstream, got))
	}
	for _, beginning := range different {
		isOther := func(fact string) bool { return !strings.HasPrefix(fact, beginning) }
		if slices.Equal(slices.DeleteFunc(slices.Clone(got), isOther),
			slices.DeleteFunc(slices.Clone(upstream), isOther)) {
			s.Errorf("%s: %q does not differ", moment, beginning)
		}
	}
	s.mark()
}

// mark makes the writes count from now on.
func (s *momentScene) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.seen {
		s.from = max(s.from, versionOf(event))
	}
}

// factsOf returns facts: lines, each with the indented ones after it.
func factsOf(text string) []string {
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(text, "\n\t", "\t"), "\n"), "\n")
}

// facts returns the facts that users see, one per line. The message of a condition or an event is in the lines after
// it.
func (s *momentScene) facts() string {
	s.Helper()
	out := &strings.Builder{}
	s.MustGet(s.plane)
	status := s.plane.Status
	fmt.Fprintf(out, "replicas %d, ready %d, available %d, up to date %d\n", *status.Replicas, *status.ReadyReplicas,
		*status.AvailableReplicas, *status.UpToDateReplicas)
	fmt.Fprintf(out, "version %s\n", status.Version)
	writeConditions(out, "plane", status.Conditions)
	machines := s.machines()
	for name := range machines {
		s.others[name] = true
	}
	if m := machines[s.first]; m != nil {
		fmt.Fprintf(out, "machine phase %s\n", m.Status.Phase)
		writeConditions(out, "machine", m.Status.Conditions)
	}
	s.writeEvents(out)
	for _, line := range s.writes() {
		fmt.Fprintln(out, line)
	}
	return s.upstreamWords(out.String())
}

var severalMachines = regexp.MustCompile(`Machines ([a-z, ]+):`)

// upstreamWords replaces kinds by those of the recording, and names by roles.
func (s *momentScene) upstreamWords(text string) string {
	words := []string{"RunlevelControlPlane", "KubeadmControlPlane", "KwokConfig", "KubeadmConfig", s.first, "first"}
	for name := range s.others {
		words = append(words, name, "other")
	}
	text = strings.NewReplacer(append(words, s.plane.Name, "plane")...).Replace(text)
	return severalMachines.ReplaceAllStringFunc(text, func(list string) string {
		names := strings.Split(severalMachines.FindStringSubmatch(list)[1], ", ")
		slices.Sort(names)
		return "Machines " + strings.Join(names, ", ") + ":"
	})
}

func writeConditions(out *strings.Builder, owner string, conditions []metav1.Condition) {
	conditions = slices.SortedFunc(slices.Values(conditions), func(a, b metav1.Condition) int {
		return strings.Compare(a.Type, b.Type)
	})
	for _, c := range conditions {
		fmt.Fprintf(out, "%s %s %s %s\n", owner, c.Type, c.Status, c.Reason)
		if c.Message != "" {
			fmt.Fprintf(out, "\t%s\n", strings.ReplaceAll(c.Message, "\n", "\n\t"))
		}
	}
}

func (s *momentScene) writeEvents(out *strings.Builder) {
	s.Helper()
	var list eventsv1.EventList
	s.MustList(&list)
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	ofPlane := map[string]bool{}
	for _, event := range list.Items {
		switch event.Regarding.Name {
		case s.first:
			fmt.Fprintf(out, "event %s %s\n\t%s\n", event.Type, event.Reason, event.Note)
		case s.plane.Name:
			ofPlane[fmt.Sprintf("event %s %s of the plane", event.Type, event.Reason)] = true
		}
	}
	for _, line := range slices.Sorted(maps.Keys(ofPlane)) {
		fmt.Fprintln(out, line)
	}
}

func versionOf(event watch.Event) int64 {
	object, isObject := event.Object.(*unstructured.Unstructured)
	if !isObject {
		return 0
	}
	version, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return version
}

// writes returns the writes to the first machine since the last moment, in their order, without those of its status.
func (s *momentScene) writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.seen, func(a, b watch.Event) int { return cmp.Compare(versionOf(a), versionOf(b)) })
	last := map[string]*unstructured.Unstructured{}
	var lines []string
	for _, event := range s.seen {
		object, isObject := event.Object.(*unstructured.Unstructured)
		if !isObject || object.GetName() != s.first {
			continue
		}
		changes := changesOf(last[object.GetKind()], object)
		if event.Type == watch.Deleted {
			changes = []string{"gone"}
		}
		last[object.GetKind()] = object
		if len(changes) > 0 && versionOf(event) > s.from {
			lines = append(lines, fmt.Sprintf("write %s %s", object.GetKind(), strings.Join(changes, " ")))
		}
	}
	return lines
}

// changesOf returns the changes of an object.
func changesOf(before, after *unstructured.Unstructured) []string {
	if before == nil {
		return nil
	}
	var changes []string
	if before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil {
		changes = append(changes, "deleted")
	}
	old, now := before.GetAnnotations(), after.GetAnnotations()
	for key, value := range now {
		if oldValue, isOld := old[key]; !isOld || oldValue != value {
			changes = append(changes, strings.TrimSuffix("+"+key[strings.Index(key, "/")+1:]+"="+value, "="))
		}
	}
	for key := range old {
		if _, isNow := now[key]; !isNow {
			changes = append(changes, "-"+key[strings.Index(key, "/")+1:])
		}
	}
	for _, field := range []string{"version", ""} {
		path := strings.Split(strings.TrimSuffix("spec."+field, "."), ".")
		previous, _, _ := unstructured.NestedFieldNoCopy(before.Object, path...)
		got, _, _ := unstructured.NestedFieldNoCopy(after.Object, path...)
		if !equality.Semantic.DeepEqual(previous, got) {
			changes = append(changes, strings.Join(path, "."))
			break
		}
	}
	slices.Sort(changes)
	return changes
}
