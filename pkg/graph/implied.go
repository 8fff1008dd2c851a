package graph

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/kinds"
)

// A Dependency is what two objects imply by themselves, whatever their files are
// called: one can't be applied, or does harm, before the other is there.
type Dependency struct {
	Task  int // waits, a place in Graph.Tasks
	Needs int // for this one
	Why   string
}

// Why a task waits for another.
const (
	needsKind      = "a custom resource waits for its CustomResourceDefinition"
	needsNamespace = "a namespaced object waits for its Namespace"
	needsService   = "the API server would call a Service that is not there yet"
	needsWorkload  = "the API server would call a Service that nothing serves yet"
)

// The kinds that others may need.
var (
	serviceKind     = schema.GroupKind{Kind: "Service"}
	daemonSetKind   = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	statefulSetKind = schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
)

// An index finds tasks by what others may need of them.
type index struct {
	kindOf     []schema.GroupKind // of each task; none for tombstones, which nothing needs
	kinds      map[schema.GroupKind][]int
	namespaces map[string][]int
	services   map[types.NamespacedName]int
	workloads  map[podLabel][]int             // by each label of their pods
	served     map[types.NamespacedName][]int // what servedBy found
	tasks      []Task
}

// Dependencies finds what the objects of tasks imply, in the order of the tasks
// that wait.
func Dependencies(tasks []Task) []Dependency {
	x := newIndex(tasks)
	var found []Dependency
	for i, task := range tasks {
		if task.IsTombstone() {
			continue // it depends on nothing, and nothing can depend on it
		}
		object := task.Object()
		need := func(needs int, known bool, why string) {
			if known && needs != i {
				found = append(found, Dependency{Task: i, Needs: needs, Why: why})
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
		kindOf: make([]schema.GroupKind, len(tasks)), kinds: map[schema.GroupKind][]int{}, namespaces: map[string][]int{},
		services: map[types.NamespacedName]int{}, workloads: map[podLabel][]int{}, served: map[types.NamespacedName][]int{}, tasks: tasks,
	}
	for i, task := range tasks {
		if task.IsTombstone() {
			continue
		}
		object := task.Object()
		x.kindOf[i] = object.GroupVersionKind().GroupKind()
		switch x.kindOf[i] {
		case kinds.CustomResourceDefinition:
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			defined, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			kind := schema.GroupKind{Group: group, Kind: defined}
			x.kinds[kind] = append(x.kinds[kind], i)
		case kinds.Namespace:
			x.namespaces[object.GetName()] = append(x.namespaces[object.GetName()], i)
		case serviceKind:
			x.services[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] = i
		case kinds.Deployment, daemonSetKind, statefulSetKind:
			for _, label := range podLabels(object) {
				x.workloads[label] = append(x.workloads[label], i)
			}
		}
	}
	return x
}

// servedBy finds the workloads whose pods a Service selects.
func (x *index) servedBy(service types.NamespacedName) []int {
	found, known := x.served[service]
	if !known {
		found = x.findWorkloads(service)
		x.served[service] = found
	}
	return found
}

func (x *index) findWorkloads(service types.NamespacedName) []int {
	at, known := x.services[service]
	if !known {
		return nil
	}
	var found []int
	for _, i := range rarest(x.workloads, x.tasks[at].Object()) {
		if Selects(x.tasks[at].Object(), x.tasks[i].Object()) {
			found = append(found, i)
		}
	}
	return found
}

// A podLabel is one that pods of a namespace have.
type podLabel struct{ namespace, key, value string }

// podLabels are those of a workload's pods.
func podLabels(workload *unstructured.Unstructured) []podLabel {
	labels, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", "labels")
	return inNamespace(workload.GetNamespace(), labels)
}

func inNamespace(namespace string, labels map[string]string) []podLabel {
	var found []podLabel
	for key, value := range labels {
		found = append(found, podLabel{namespace, key, value})
	}
	return found
}

// rarest are the workloads that have that label of a Service's selector which fewest
// have.
func rarest(workloads map[podLabel][]int, service *unstructured.Unstructured) []int {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	var fewest []int
	for i, label := range inNamespace(service.GetNamespace(), selector) {
		if found := workloads[label]; i == 0 || len(found) < len(fewest) {
			fewest = found
		}
	}
	return fewest
}

// Selects says whether a Service leads to the pods of a workload in its namespace.
func Selects(service, workload *unstructured.Unstructured) bool {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	pods, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", "labels")
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(pods))
}
