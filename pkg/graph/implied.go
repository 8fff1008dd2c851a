package graph

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// A Dependency is between two objects, independent of the names of their files: one can't
// be applied, or does harm, before the other exists.
type Dependency struct {
	Task  int // the task that waits, an index of Graph.Tasks
	Needs int // the task that it waits for
	Why   string
}

// Why a task waits for another.
const (
	needsKind      = "a custom resource waits for its CustomResourceDefinition"
	needsNamespace = "a namespaced object waits for its Namespace"
	needsService   = "the API server would call a Service that does not exist yet"
	needsWorkload  = "the API server would call a Service that nothing serves yet"
)

// An index finds tasks by what other tasks may need: kind, namespace, Service or pods.
type index struct {
	kindOf     []schema.GroupKind // kind of each task; none for tombstones, which nothing needs
	kinds      map[schema.GroupKind][]int
	namespaces map[string][]int
	services   map[types.NamespacedName]int
	workloads  PodIndex[int]
	served     map[types.NamespacedName][]int // the results of servedBy
	tasks      []Task
}

// Dependencies returns the dependencies that the objects of tasks imply, in the order
// of the tasks that wait.
func Dependencies(tasks []Task) []Dependency {
	x := newIndex(tasks)
	var found []Dependency
	for i, task := range tasks {
		if task.IsTombstone() {
			continue // a tombstone depends on nothing, and nothing depends on it
		}
		object := task.Object()
		need := func(needs int, known bool, reason string) {
			if known && needs != i {
				found = append(found, Dependency{Task: i, Needs: needs, Why: reason})
			}
		}
		for _, crd := range x.kinds[x.kindOf[i]] {
			need(crd, true, needsKind)
		}
		if namespace := object.GetNamespace(); namespace != "" {
			for _, holder := range x.namespaces[namespace] {
				need(holder, true, needsNamespace)
			}
		}
		for _, called := range kinds.CalledServices(object) {
			service, known := x.services[called]
			need(service, known, needsService)
			for _, workload := range x.servedBy(called) {
				need(workload, true, needsWorkload)
			}
		}
	}
	return found
}

func newIndex(tasks []Task) *index {
	x := &index{
		kindOf: make([]schema.GroupKind, len(tasks)), kinds: map[schema.GroupKind][]int{},
		namespaces: map[string][]int{},
		services:   map[types.NamespacedName]int{}, workloads: PodIndex[int]{},
		served: map[types.NamespacedName][]int{}, tasks: tasks,
	}
	for i, task := range tasks {
		if task.IsTombstone() {
			continue
		}
		object := task.Object()
		x.kindOf[i] = object.GroupVersionKind().GroupKind()
		switch x.kindOf[i] {
		case kinds.CustomResourceDefinition:
			kind := kinds.DefinedBy(object)
			x.kinds[kind] = append(x.kinds[kind], i)
		case kinds.Namespace:
			x.namespaces[object.GetName()] = append(x.namespaces[object.GetName()], i)
		case kinds.Service:
			x.services[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] = i
		case kinds.Deployment, kinds.DaemonSet, kinds.StatefulSet:
			x.workloads.Add(object, i)
		}
	}
	return x
}

// servedBy finds the workloads whose pods a Service selects.
func (ix *index) servedBy(service types.NamespacedName) []int {
	found, known := ix.served[service]
	if !known {
		found = ix.findWorkloads(service)
		ix.served[service] = found
	}
	return found
}

func (ix *index) findWorkloads(service types.NamespacedName) []int {
	position, known := ix.services[service]
	if !known {
		return nil
	}
	var found []int
	for _, i := range ix.workloads.Candidates(ix.tasks[position].Object()) {
		if Selects(ix.tasks[position].Object(), ix.tasks[i].Object()) {
			found = append(found, i)
		}
	}
	return found
}

// A PodIndex finds workloads by the labels of their pods.
type PodIndex[T comparable] map[podLabel][]T

// A podLabel is a label of pods in a namespace.
type podLabel struct{ namespace, key, value string }

// Add adds a workload under the pod labels of an object. A workload that several objects in a row add has each label
// once.
func (p PodIndex[T]) Add(object *unstructured.Unstructured, workload T) {
	for key, value := range kinds.PodLabels(object) {
		label := podLabel{object.GetNamespace(), key, value}
		if known := p[label]; len(known) == 0 || known[len(known)-1] != workload {
			p[label] = append(known, workload)
		}
	}
}

// Candidates returns the workloads that a Service may select: those with the rarest label of its selector.
func (p PodIndex[T]) Candidates(service *unstructured.Unstructured) []T {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	var fewest []T
	isFirst := true
	for key, value := range selector {
		if found := p[podLabel{service.GetNamespace(), key, value}]; isFirst || len(found) < len(fewest) {
			fewest, isFirst = found, false
		}
	}
	return fewest
}

// Selects reports whether a Service selects the pods of a workload in its namespace.
func Selects(service, workload *unstructured.Unstructured) bool {
	selector := kinds.SelectorOf(service)
	return selector != nil && selector.Matches(kinds.PodLabels(workload))
}
