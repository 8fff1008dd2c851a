package graph_test

import (
	"fmt"
	"math/rand"
	"slices"
	"sort"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/graph"
)

// TestRandomPayloads builds graphs of many small payloads whose dependencies contradict the order of their files, and
// checks the invariants of graphs.
func TestRandomPayloads(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for round := range 3_000 {
		tasks := randomTasks(random)
		for _, mode := range []graph.Mode{graph.Update, graph.Install, graph.Reconcile} {
			options := graph.Options{Mode: mode, Attempt: round}
			plain := graph.Build(tasks, options)
			options.Implied = true
			g := graph.Build(tasks, options)

			place := make([]int, len(tasks))
			for index, task := range finish(t, g) { // finish fails for a cycle
				place[task] = index
			}
			for _, d := range g.Implied {
				if place[d.Needs] > place[d.Task] {
					t.Fatalf("round %d, %s: %s is done before %s\n%s", round, mode, tasks[d.Task].file,
						tasks[d.Needs].file, print(g))
				}
			}
			if got, want := len(g.Implied)+len(g.Conflicts), len(graph.Dependencies(g.Tasks)); got != want {
				t.Fatalf("round %d, %s: of %d dependencies %d are left", round, mode, want, got)
			}
			for i, node := range g.Nodes {
				if slices.Sort(node.In); len(slices.Compact(node.In)) != len(node.In) || slices.Contains(node.In, i) {
					t.Fatalf("round %d, %s: node %d has an edge twice, or to itself\n%s", round, mode, i, print(g))
				}
			}
			keepsOrder(t, plain, place)
		}
	}
}

// keepsOrder checks that the order of the files is kept: the tasks of a node of the plain graph are done in sequence.
func keepsOrder(t *testing.T, plain *graph.Graph, place []int) {
	t.Helper()
	for _, node := range plain.Nodes {
		if !sort.SliceIsSorted(node.Tasks, func(i, j int) bool { return place[node.Tasks[i]] < place[node.Tasks[j]] }) {
			t.Fatalf("tasks %v are not done in this order", node.Tasks)
		}
		for _, next := range node.Out {
			if values := plain.Nodes[next].Tasks; len(node.Tasks) > 0 && len(values) > 0 &&
				place[node.Tasks[len(node.Tasks)-1]] > place[values[0]] {
				t.Fatalf("task %d is done before task %d", values[0], node.Tasks[len(node.Tasks)-1])
			}
		}
	}
}

// randomTasks returns definitions, custom resources, namespaces and Jobs in random order.
func randomTasks(random *rand.Rand) []task {
	var tasks []task
	for range 1 + random.Intn(12) {
		file := fmt.Sprintf("0000_%d0_%c_x", 1+random.Intn(3), 'a'+rune(random.Intn(3)))
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		name := fmt.Sprint(random.Intn(3))
		switch random.Intn(6) {
		case 0:
			object.SetAPIVersion("apiextensions.k8s.io/v1")
			object.SetKind("CustomResourceDefinition")
			object.Object["spec"] = map[string]any{
				"group": "example.com",
				"names": map[string]any{"kind": "Kind" + name},
			}
		case 1:
			object.SetKind("Namespace")
		case 2:
			object.SetAPIVersion("batch/v1")
			object.SetKind("Job")
			object.SetNamespace(name)
		default:
			object.SetAPIVersion("example.com/v1")
			object.SetKind("Kind" + name)
			object.SetNamespace(fmt.Sprint(random.Intn(3)))
		}
		object.SetName(name)
		tasks = append(tasks, task{file: file, object: object, tombstone: random.Intn(10) == 0})
	}
	slices.SortStableFunc(tasks, func(a, b task) int { return strings.Compare(a.file, b.file) })
	return tasks
}
