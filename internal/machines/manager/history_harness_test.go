package manager_test

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A podEviction is a request to evict a pod.
type podEviction struct {
	span
	Pod  string
	By   string
	Code int
}

// A history contains the states of a machine over time, and the changes to its node and its infrastructure.
type history struct {
	Name           string
	Machine        timeline[machineState]
	Node           timeline[corev1.Node]
	Infrastructure timeline[metav1.PartialObjectMetadata]
	// InfrastructureDeletes are the controllers' requests to delete it; it exists until its finalizers are removed.
	InfrastructureDeletes []span
	Pods                  map[string]*timeline[corev1.Pod] // pods of the machine's node, by name
	Evictions             []podEviction
}

// historiesOf makes histories of machines from the requests of an audit log, by the names of the machines.
func historiesOf(requests []auditedRequest) map[string]*history {
	r := recorder{
		histories: map[string]*history{}, machineOfNode: map[string]string{}, nodeOfPod: map[string]string{},
		nodes: map[string]*timeline[corev1.Node]{},
	}
	for _, request := range requests {
		r.recordMachine(request)
	}
	for _, request := range requests {
		r.record(request)
	}
	for node, machine := range r.machineOfNode {
		if h, known := r.histories[machine], r.nodes[node]; h != nil && known != nil {
			h.Node = *known
		}
	}
	for _, h := range r.histories {
		slices.SortStableFunc(h.Machine.States, byVersion(func(m *machineState) metav1.Object { return m }))
		slices.SortStableFunc(h.Node.States, byVersion(func(n *corev1.Node) metav1.Object { return n }))
	}
	return r.histories
}

// byVersion compares writes of an object in their order: that of resource versions, but the deletion is the last.
func byVersion[T any](meta func(*T) metav1.Object) func(a, b recorded[T]) int {
	version := func(state recorded[T]) int {
		// such an answer has the version of the object before
		if state.Object == nil || isReleased(meta(state.Object)) {
			return math.MaxInt
		}
		number, _ := strconv.Atoi(meta(state.Object).GetResourceVersion())
		return number
	}
	return func(a, b recorded[T]) int { return cmp.Compare(version(a), version(b)) }
}

// isReleased reports of an object that the request that left it so has removed it.
func isReleased(object metav1.Object) bool {
	return object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0
}

// A recorder sorts requests into histories.
type recorder struct {
	histories     map[string]*history
	machineOfNode map[string]string
	nodeOfPod     map[string]string
	nodes         map[string]*timeline[corev1.Node]
}

// decode returns the object in the answer to a request, or nil if the request removed it, and its name, which is "" if
// the server had not chosen it yet.
func decode[T any](r auditedRequest, meta func(*T) metav1.Object) (recorded[T], string) {
	state := recorded[T]{span: r.span(), By: r.UserAgent}
	object := new(T)
	if json.Unmarshal(r.ResponseObject, object) != nil || meta(object).GetName() == "" {
		// a Status answers the delete of an object without finalizers, and a failed request
		return state, r.ObjectRef.Name
	}
	state.Object = object
	return state, meta(object).GetName()
}

func (r *recorder) recordMachine(request auditedRequest) {
	if request.ObjectRef.Resource != "machines" {
		return
	}
	state, name := decodeMachine(request)
	if name == "" {
		return
	}
	if state.Object != nil && state.Object.node != "" {
		r.machineOfNode[state.Object.node] = name
	}
	h := r.histories[name]
	if h == nil {
		h = &history{Name: name, Pods: map[string]*timeline[corev1.Pod]{}}
		r.histories[name] = h
	}
	h.Machine.add(request, state)
}

// decodeMachine is decode for the Machines of both APIs.
func decodeMachine(request auditedRequest) (recorded[machineState], string) {
	r := recorded[machineState]{span: request.span(), By: request.UserAgent}
	if request.ObjectRef.APIGroup == clusterv1.GroupVersion.Group {
		m, name := decode(request, func(m *clusterv1.Machine) metav1.Object { return m })
		if m.Object != nil {
			r.Object = stateOfClusterAPI(m.Object)
		}
		return r, name
	}
	m, name := decode(request, func(m *machinev1beta1.Machine) metav1.Object { return m })
	if m.Object != nil {
		r.Object = stateOfOpenShift(m.Object)
	}
	return r, name
}

func (r *recorder) record(request auditedRequest) {
	switch ref := request.ObjectRef; {
	case ref.Resource == "pods" && ref.Subresource == "binding":
		var binding corev1.Binding
		if json.Unmarshal(request.RequestObject, &binding) == nil && request.isDone() {
			r.nodeOfPod[ref.Namespace+"/"+ref.Name] = binding.Target.Name
		}
	case ref.Resource == "pods":
		r.recordPod(request)
	case ref.Resource == "nodes":
		r.recordNode(request)
	case ref.APIGroup == "infrastructure.runlevel.dev":
		r.recordInfrastructure(request)
	}
}

func (r *recorder) recordNode(request auditedRequest) {
	state, name := decode(request, func(n *corev1.Node) metav1.Object { return n })
	if request.Verb == "delete" {
		state.Object = nil // a node has no finalizers in these tests, and is removed at once
	}
	if r.nodes[name] == nil {
		r.nodes[name] = &timeline[corev1.Node]{}
	}
	r.nodes[name].add(request, state)
}

// recordPod records the states and the evictions of a pod. After an eviction, the time of its end is unknown.
func (r *recorder) recordPod(request auditedRequest) {
	ref := request.ObjectRef
	state, name := decode(request, func(p *corev1.Pod) metav1.Object { return p })
	if state.Object != nil && state.Object.Spec.NodeName != "" {
		r.nodeOfPod[ref.Namespace+"/"+name] = state.Object.Spec.NodeName
	}
	h := r.histories[r.machineOfNode[r.nodeOfPod[ref.Namespace+"/"+name]]]
	if h == nil {
		return
	}
	if h.Pods[name] == nil {
		h.Pods[name] = &timeline[corev1.Pod]{}
	}
	if ref.Subresource != "eviction" {
		if request.Verb == "delete" && state.Object != nil &&
			ptr.Deref(state.Object.DeletionGracePeriodSeconds, 1) == 0 {
			state.Object = nil
		}
		h.Pods[name].add(request, state)
		return
	}
	h.Evictions = append(h.Evictions,
		podEviction{span: request.span(), Pod: name, By: request.UserAgent, Code: request.ResponseStatus.Code})
	if request.isDone() || request.isUnsure() {
		h.Pods[name].Unsure = append(h.Pods[name].Unsure, request.span())
	}
}

func (r *recorder) recordInfrastructure(request auditedRequest) {
	state, name := decode(request, func(o *metav1.PartialObjectMetadata) metav1.Object { return o })
	h := r.histories[name]
	if h == nil {
		return
	}
	isByController := strings.HasPrefix(request.UserAgent, controllerAgent)
	if request.Verb == "delete" && isByController && (request.isDone() || request.isUnsure()) {
		h.InfrastructureDeletes = append(h.InfrastructureDeletes, request.span())
	}
	if state.Object != nil && isReleased(state.Object) {
		state.Object = nil
	}
	h.Infrastructure.add(request, state)
}
