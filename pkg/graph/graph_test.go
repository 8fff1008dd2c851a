package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/sandbox/transcript"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A task is a graph.Task of a test: a file and its object.
type task struct {
	file      string
	object    *unstructured.Unstructured
	tombstone bool
}

func (t task) File() string                       { return t.file }
func (t task) Object() *unstructured.Unstructured { return t.object }
func (t task) IsTombstone() bool                  { return t.tombstone }

// newTask returns the task of a line: FILE for a ConfigMap, or FILE KIND. The kinds are Job, and Hooked for a
// Deployment with lifecycle hooks.
func newTask(line string) task {
	file, kind, _ := strings.Cut(line, " ")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	if kind == "Job" {
		object.Object = map[string]any{"apiVersion": "batch/v1", "kind": "Job"}
	}
	if kind == "Hooked" {
		object.Object = map[string]any{"apiVersion": "apps/v1", "kind": "Deployment"}
		object.SetAnnotations(map[string]string{"runlevel.dev/lifecycle-hooks": "pre: {}"})
	}
	object.SetName(file)
	return task{file: file, object: object}
}

// print returns a graph as text: each node with its files and its predecessors.
func print(g *graph.Graph) string {
	var out strings.Builder
	for i, node := range g.Nodes {
		files := []string{}
		for _, index := range node.Tasks {
			files = append(files, g.Tasks[index].File())
		}
		if len(files) == 0 {
			files = []string{"(spacer)"}
		}
		fmt.Fprintf(&out, "%d: %s", i, strings.Join(files, " "))
		if len(node.In) > 0 {
			fmt.Fprintf(&out, " <- %s", strings.Trim(fmt.Sprint(node.In), "[]"))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestBuiltGraphs reads testdata/*.txtar: "tasks" has a file name on each line, followed by "Job"
// for a Job, and the other files are the graphs for the modes.
func TestBuiltGraphs(t *testing.T) {
	for _, file := range transcript.ReadAll(t, "testdata/*.txtar") {
		t.Run(file.Name, func(t *testing.T) {
			tasks := tasksOf(file)
			for _, want := range file.Files[1:] {
				mode, attempt := graph.Mode(want.Name), 0
				if _, err := fmt.Sscanf(want.Name, "reconcile %d", &attempt); err == nil {
					mode = graph.Reconcile
				}
				got := print(graph.Build(tasks, graph.Options{Mode: mode, Attempt: attempt}))
				file.Expect(t, want.Name, got)
			}
		})
	}
}

// tasksOf reads the file names of the first section.
func tasksOf(file *transcript.Transcript) (tasks []task) {
	for line := range strings.Lines(string(file.Files[0].Data)) {
		tasks = append(tasks, newTask(strings.TrimSpace(line)))
	}
	return tasks
}

// The order of a reconcile is the same for the same attempt, and differs between attempts.
func TestReconcileOrderDependsOnTheAttempt(t *testing.T) {
	var tasks []task
	for i := range 40 {
		tasks = append(tasks, newTask(fmt.Sprintf("0000_10_c%02d_a.yaml", i)))
	}
	seen := map[string]int{}
	for attempt := range 16 {
		options := graph.Options{Mode: graph.Reconcile, Attempt: attempt}
		once := print(graph.Build(tasks, options))
		if again := print(graph.Build(tasks, options)); again != once {
			t.Fatalf("attempt %d has two orders", attempt)
		}
		if before, twice := seen[once]; twice {
			t.Errorf("attempts %d and %d have the same order", before, attempt)
		}
		seen[once] = attempt
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string]graph.Name{
		"0000_50_a-b_x.yaml": {Level: "50", Component: "a-b"}, "0000_50_a_b_x.yaml": {Level: "50", Component: "a"},
		"0000_5_a_": {Level: "5", Component: "a"},
		"0000_50_a": {}, "0000__a_": {}, "0000_50__x": {}, "0000_50_-a_x": {}, "0000_50_a-_x": {}, "0000_50_a--b_x": {},
		"000_50_a_x":  {},
		"0000_5x_a_x": {}, "0000_٥_a_x": {}, "0000_50_ä_x": {}, "": {}, "0000_50_a.b_x": {},
	} {
		if got := graph.ParseName(name); got != want {
			t.Errorf("%q is %+v, want %+v", name, got, want)
		}
	}
}

// finish walks a graph to its end, and returns the order of the tasks.
func finish(t testing.TB, g *graph.Graph) []int {
	t.Helper()
	var order []int
	w := g.Walk()
	for ready := w.Ready(); len(ready) > 0; ready = w.Ready() {
		for _, node := range ready {
			order = append(order, g.Nodes[node].Tasks...)
			w.Done(node, graph.OK)
		}
	}
	if !w.Finished() {
		t.Fatal("the walk is stuck")
	}
	return order
}

func TestWalkVisitsEachTaskOnce(t *testing.T) {
	for _, file := range transcript.ReadAll(t, "testdata/*.txtar") {
		tasks := tasksOf(file)
		for _, mode := range []graph.Mode{graph.Update, graph.Install, graph.Reconcile} {
			order := finish(t, graph.Build(tasks, graph.Options{Mode: mode, Attempt: 3, Implied: true}))
			slices.Sort(order)
			for i := range tasks {
				if i >= len(order) || order[i] != i {
					t.Fatalf("%s, %s: visited %v", file.Name, mode, order)
				}
			}
		}
	}
}

func TestWalkOrder(t *testing.T) {
	// Two components, a Job, and two components: spacers in between.
	g := graph.Build([]task{
		newTask("0000_10_a_x"), newTask("0000_10_b_x"), newTask("0000_20_job_x Job"), newTask("0000_30_c_x"),
		newTask("0000_30_d_x"),
	}, graph.Options{})
	node := func(file string) int {
		return slices.IndexFunc(g.Nodes, func(n graph.Node) bool {
			return len(n.Tasks) > 0 && g.Tasks[n.Tasks[0]].File() == file
		})
	}
	a, b, job, c, d := node("0000_10_a_x"), node("0000_10_b_x"), node("0000_20_job_x"), node("0000_30_c_x"),
		node("0000_30_d_x")

	w := g.Walk()
	if ready := w.Ready(); !slices.Equal(ready, []int{a, b}) {
		t.Fatalf("first %v are ready", ready)
	}
	if why := w.WhyBlocked(job); !slices.Equal(why, []int{a, b}) {
		t.Errorf("the Job is blocked by %v", why)
	}
	if why := w.WhyBlocked(d); !slices.Equal(why, []int{job}) {
		t.Errorf("d is blocked by %v: only the Job is its direct predecessor", why)
	}
	w.Done(a, graph.Skipped)
	if ready := w.Ready(); len(ready) > 0 {
		t.Errorf("%v are ready before b is done", ready)
	}
	if why := w.WhyBlocked(job); !slices.Equal(why, []int{b}) {
		t.Errorf("the Job is blocked by %v", why)
	}
	w.Done(b, graph.OK)
	if ready := w.Ready(); !slices.Equal(ready, []int{job}) {
		t.Fatalf("then %v are ready", ready)
	}
	if why := w.WhyBlocked(job); why != nil {
		t.Errorf("a running node is blocked by %v", why)
	}
	w.Done(job, graph.Failed)
	if ready := w.Ready(); len(ready) > 0 || w.Finished() {
		t.Errorf("after a failure %v are ready", ready)
	}
	if why := w.WhyBlocked(c); !slices.Equal(why, []int{job}) || w.State(job) != graph.Failed {
		t.Errorf("c is blocked by %v", why)
	}
}

func TestAFailureDoesNotAffectOtherNodes(t *testing.T) {
	g := graph.Build([]task{newTask("0000_10_a_x"), newTask("0000_10_b_x"), newTask("0000_10_b_y"),
		newTask("0000_20_c_x")}, graph.Options{Mode: graph.Install})
	w := g.Walk()
	ready := w.Ready()
	w.Done(ready[0], graph.Failed)
	w.Done(ready[1], graph.OK)
	w.Done(ready[2], graph.OK)
	if w.Finished() {
		t.Error("the walk is finished, in spite of a failed node")
	}
}
