package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/pkg/graph"
)

// object returns the task of a YAML text.
func object(t *testing.T, file, text string) task {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	return task{file: file, object: &unstructured.Unstructured{Object: fields}}
}

const (
	crd = `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.com},
	  spec: {group: example.com, names: {kind: Widget, plural: widgets}}}`
	widget      = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: there}}`
	namespace   = `{apiVersion: v1, kind: Namespace, metadata: {name: there}}`
	service     = `{apiVersion: v1, kind: Service, metadata: {name: hooks, namespace: there}, spec: {selector: {app: hooks}}}`
	workload    = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: hooks, namespace: there}, spec: {template: {metadata: {labels: {app: hooks, tier: web}}}}}`
	otherwise   = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: other, namespace: there}, spec: {template: {metadata: {labels: {app: other}}}}}`
	webhook     = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: v}, webhooks: [{clientConfig: {url: x}}, {clientConfig: {service: {namespace: there, name: hooks}}}, {clientConfig: {service: {namespace: there, name: hooks}}}]}`
	apiService  = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.example.com}, spec: {service: {namespace: there, name: hooks}}}`
	localAPI    = `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v2.example.com}, spec: {}}`
	nothingElse = `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}`
)

// dependencyText returns one line for each dependency.
func dependencyText(tasks []graph.Task, dependencies []graph.Dependency) []string {
	var lines []string
	for _, d := range dependencies {
		lines = append(lines, fmt.Sprintf("%s < %s", graph.Label(tasks[d.Task]), graph.Label(tasks[d.Needs])))
	}
	return lines
}

func TestImpliedDependencies(t *testing.T) {
	tasks := []graph.Task{
		object(t, "a", widget), object(t, "b", webhook), object(t, "c", apiService), object(t, "d", localAPI),
		object(t, "e", crd),
		object(t, "f", namespace), object(t, "g", service), object(t, "h", workload), object(t, "i", otherwise),
		object(t, "j", nothingElse),
	}
	want := []string{
		"widget there/w < customresourcedefinition widgets.example.com",
		"widget there/w < namespace there",
		"validatingwebhookconfiguration v < service there/hooks",
		"validatingwebhookconfiguration v < deployment there/hooks",
		"apiservice v1.example.com < service there/hooks",
		"apiservice v1.example.com < deployment there/hooks",
		"service there/hooks < namespace there",
		"deployment there/hooks < namespace there",
		"deployment there/other < namespace there",
	}
	if diff := cmp.Diff(want, dependencyText(tasks, graph.Dependencies(tasks))); diff != "" {
		t.Error(diff)
	}
}

func TestNothingWaitsForItself(t *testing.T) {
	odd := object(t, "a", `{apiVersion: v1, kind: Namespace, metadata: {name: there, namespace: there}}`)
	if found := graph.Dependencies([]graph.Task{odd}); len(found) > 0 {
		t.Error(found)
	}
}

func TestATombstoneDependsOnNothing(t *testing.T) {
	deletedWidget := object(t, "a", widget)
	deletedWidget.tombstone = true
	deletedCRD := object(t, "b", crd)
	deletedCRD.tombstone = true
	for _, tasks := range [][]graph.Task{{deletedWidget, object(t, "b", crd)}, {object(t, "a", widget), deletedCRD}} {
		if found := graph.Dependencies(tasks); len(found) > 0 {
			t.Error(dependencyText(tasks, found))
		}
	}
}

func TestImpliedEdges(t *testing.T) {
	for name, test := range map[string]struct {
		mode      graph.Mode
		tasks     []task
		order     []string // pairs: the first must be done before the second may begin
		conflicts []string
	}{
		"an install waits for a definition in a later level": {
			mode: graph.Install,
			tasks: []task{object(t, "0000_10_a_a", widget), object(t, "0000_90_b_a", nothingElse),
				object(t, "0000_90_b_b", crd)},
			order: []string{"0000_90_b_b", "0000_10_a_a"},
		},
		"an update waits inside of a level": {
			tasks: []task{object(t, "0000_10_a_a", widget), object(t, "0000_10_b_a", crd)},
			order: []string{"0000_10_b_a", "0000_10_a_a"},
		},
		"the order of the files takes precedence in an update": {
			tasks:     []task{object(t, "0000_10_a_a", widget), object(t, "0000_20_b_a", crd)},
			order:     []string{"0000_10_a_a", "0000_20_b_a"},
			conflicts: []string{"widget there/w < customresourcedefinition widgets.example.com"},
		},
		"the order of the files takes precedence in a component": {
			mode: graph.Install,
			tasks: []task{object(t, "0000_10_a_a", widget), object(t, "0000_10_a_b", crd),
				object(t, "0000_20_b_a", namespace)},
			order:     []string{"0000_10_a_a", "0000_10_a_b", "0000_20_b_a", "0000_10_a_a"},
			conflicts: []string{"widget there/w < customresourcedefinition widgets.example.com"},
		},
		"two components may need each other": {
			mode: graph.Install,
			tasks: []task{
				object(t, "0000_10_a_a", namespace), object(t, "0000_10_a_b", widget),
				object(t, "0000_20_b_a", crd), object(t, "0000_20_b_b", workload),
			},
			order: []string{"0000_20_b_a", "0000_10_a_b", "0000_10_a_a", "0000_20_b_b"},
		},
		"a cycle of dependencies is cut": {
			mode: graph.Install,
			tasks: []task{
				object(t, "0000_10_a_a", widget), object(t, "0000_10_a_b", namespace),
				object(t, "0000_20_b_a", workload), object(t, "0000_20_b_b", crd),
			},
			order: []string{"0000_10_a_b", "0000_20_b_a"},
			conflicts: []string{
				"widget there/w < customresourcedefinition widgets.example.com", "widget there/w < namespace there",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.Build(test.tasks, graph.Options{Mode: test.mode, Implied: true})
			if diff := cmp.Diff(test.conflicts, dependencyText(g.Tasks, g.Conflicts)); diff != "" {
				t.Error(diff)
			}
			finish(t, g)
			for pair := range slices.Chunk(test.order, 2) {
				if !mustFollow(g, pair[0], pair[1]) {
					t.Errorf("%s may begin before %s is done:\n%s", pair[1], pair[0], print(g))
				}
			}
		})
	}
}

// A dependency splits nodes on both sides: the tasks before a task that waits do not wait, and a task does not wait for
// the tasks after the one that it needs.
func TestDependencySplitsNodesOnBothSides(t *testing.T) {
	g := graph.Build([]task{
		object(t, "0000_10_a_a", crd), newTask("0000_10_a_b"),
		newTask("0000_20_b_a"), object(t, "0000_20_b_b", widget), newTask("0000_20_b_c"),
	}, graph.Options{Mode: graph.Install, Implied: true})
	want := `0: (spacer)
1: 0000_10_a_a <- 0
2: 0000_10_a_b <- 1
3: 0000_20_b_a <- 0
4: 0000_20_b_b 0000_20_b_c <- 3 1
`
	if diff := cmp.Diff(want, print(g)); diff != "" {
		t.Error(diff)
	}
}

// The graph has an edge once, although both the files and the objects require it.
func TestEdgesAreNotRepeated(t *testing.T) {
	g := graph.Build([]task{object(t, "0000_10_a_a", crd), newTask("0000_10_b_a"), object(t, "0000_20_c_a", widget)},
		graph.Options{Implied: true})
	want := `0: (spacer)
1: 0000_10_a_a <- 0
2: 0000_10_b_a <- 0
3: 0000_20_c_a <- 1 2
`
	if diff := cmp.Diff(want, print(g)); diff != "" {
		t.Error(diff)
	}
}

// mustFollow reports whether the second task begins only after the first is done: the walk fails the node
// of the first.
func mustFollow(g *graph.Graph, first, second string) bool {
	w := g.Walk()
	for ready := w.Ready(); len(ready) > 0; ready = w.Ready() {
		for _, node := range ready {
			files := []string{}
			for _, index := range g.Nodes[node].Tasks {
				files = append(files, g.Tasks[index].File())
			}
			i, before := slices.Index(files, second), slices.Index(files, first)
			if i >= 0 && (before < 0 || before > i) {
				return false
			}
			if before >= 0 {
				w.Done(node, graph.Failed)
			} else {
				w.Done(node, graph.OK)
			}
		}
	}
	return true
}
