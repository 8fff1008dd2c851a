package precondition

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	resources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxPodLists limits the Nodes whose pods are listed.
const maxPodLists = 20

// runningPods selects the pods that have not ended.
const runningPods = "status.phase!=Succeeded,status.phase!=Failed"

// A podNeed is the pods of the workload of a manifest.
type podNeed struct {
	place
	pod      *corev1.Pod
	requests corev1.ResourceList // of one pod
	count    int64
}

// podNeeds returns the pods of the workloads of the payload. CronJobs create none during an update.
func podNeeds(places []place) []podNeed {
	var needs []podNeed
	for _, p := range places {
		kind, object := p.manifest.ID().GroupKind(), p.manifest.Object().Object
		if kinds.PodSpec(kind) == nil || p.manifest.IsTombstone() || kind == kinds.CronJob {
			continue
		}
		need := podNeed{place: p, pod: &corev1.Pod{}, count: 1}
		spec, _, _ := unstructured.NestedMap(object, kinds.PodSpec(kind)...)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &need.pod.Spec) != nil {
			continue // the API server refuses it
		}
		for _, field := range []string{"replicas", "parallelism"} {
			if count, isSet, _ := unstructured.NestedInt64(object, "spec", field); isSet {
				need.count = count
			}
		}
		if count, isSet, _ := unstructured.NestedInt64(object, "spec", "completions"); isSet {
			need.count = min(need.count, count)
		}
		need.requests = requestsOf(need.pod)
		needs = append(needs, need)
	}
	return needs
}

// requestsOf returns the requests of a pod. For a resource without a request, the API server takes the limit.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requests := corev1.ResourceList{}
			maps.Copy(requests, containers[i].Resources.Limits)
			maps.Copy(requests, containers[i].Resources.Requests)
			containers[i].Resources.Requests = requests
		}
	}
	requests := resources.PodRequests(pod, resources.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// nodesRoom is the room on ready Nodes. The pods of a Node are listed when its room is needed for the first time.
type nodesRoom struct {
	cluster   *cluster.Cluster
	nodes     []*corev1.Node
	free      map[string]corev1.ResourceList // by the names of Nodes
	isUnknown bool                           // the pods of a Node were not listed
}

// findShortages finds the workloads for whose pods the Nodes lack room, as far as their room is known.
func (r *nodesRoom) findShortages(ctx context.Context, needs []podNeed) []Obstacle {
	var found []Obstacle
	for _, need := range needs {
		if cause := r.place(ctx, need); cause == "" || r.isUnknown {
			continue
		}
		if need.count = r.growth(ctx, need); need.count == 0 {
			continue
		}
		if cause := r.place(ctx, need); cause != "" && !r.isUnknown {
			found = append(found, Obstacle{
				ID: need.id(), Manifest: need.manifest, Why: cause,
				Resolution: "adding a Node, or changing what the pods request and where they may run",
			})
		}
	}
	return found
}

// place returns why the Nodes lack room for the pods of a workload; "" if they have enough. Pods with a priority class
// may take the room of others.
func (r *nodesRoom) place(ctx context.Context, need podNeed) string {
	fitting, closest, most := int64(0), "", -1.0
	var left corev1.ResourceList
	for _, node := range r.nodes {
		if fitting >= need.count || !accepts(node, need.pod) {
			continue
		}
		free := node.Status.Allocatable
		if portion(need.requests, free) >= 1 && need.pod.Spec.PriorityClassName == "" {
			free = r.freeOn(ctx, node)
		}
		fits := portion(need.requests, free)
		if fitting += int64(fits); fits > most {
			closest, most, left = node.Name, fits, free
		}
	}
	nodes := printable.Count(len(r.nodes), "ready Node")
	switch {
	case fitting >= need.count, closest == "" && need.id().GroupKind() == kinds.DaemonSet: // the latter has no Nodes
		return ""
	case closest == "":
		return fmt.Sprintf("of %s, its node selector, affinity and tolerations leave none", nodes)
	}
	requests := maps.Clone(need.requests)
	if pods := left[corev1.ResourcePods]; pods.Value() > 0 {
		delete(requests, corev1.ResourcePods) // their number is not the problem
	}
	return fmt.Sprintf("%s %s room for %d of %s: each requests %s, and Node %s, the closest, has %s left", nodes,
		either(len(r.nodes), "has", "have"), fitting, printable.Count(int(need.count), "new pod"),
		amounts(requests, requests), printable.Line(closest), amounts(left, requests))
}

// accepts reports whether a pod may run on a Node, by its node selector, affinity and tolerations.
func accepts(node *corev1.Node, pod *corev1.Pod) bool {
	isMatch, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	_, isTainted := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations,
		func(taint *corev1.Taint) bool { return taint.Effect != corev1.TaintEffectPreferNoSchedule }, true)
	return err == nil && isMatch && !isTainted
}

// freeOn returns the room that the pods of a Node leave.
func (r *nodesRoom) freeOn(ctx context.Context, node *corev1.Node) corev1.ResourceList {
	free, isKnown := r.free[node.Name]
	r.isUnknown = r.isUnknown || !isKnown && len(r.free) == maxPodLists
	if isKnown || r.isUnknown {
		return free
	}
	selector := "spec.nodeName=" + node.Name + "," + runningPods
	pods, err := r.cluster.Client.CoreV1().Pods("").List(ctx,
		metav1.ListOptions{FieldSelector: selector, ResourceVersion: "0"}) // from the cache of the API server
	if r.isUnknown = err != nil; r.isUnknown {
		return nil
	}
	free = node.Status.Allocatable.DeepCopy()
	for i := range pods.Items {
		for name, quantity := range requestsOf(&pods.Items[i]) {
			left := free[name]
			left.Sub(quantity)
			free[name] = left
		}
	}
	r.free[node.Name] = free
	return free
}

// portion returns how many pods with these requests fit into free room, as a fraction.
func portion(requests, free corev1.ResourceList) float64 {
	least := math.Inf(1)
	for name, requested := range requests {
		if left := free[name]; !requested.IsZero() {
			least = min(least, float64(max(left.MilliValue(), 0))/float64(requested.MilliValue()))
		}
	}
	return least
}

// growth returns how many pods an apply of the workload adds to those on the cluster: all of a new workload, and one of
// a Deployment whose rollout creates a pod before it deletes one.
func (r *nodesRoom) growth(ctx context.Context, need podNeed) int64 {
	live, err := r.cluster.Get(ctx, need.id())
	if apierrors.IsNotFound(err) {
		return need.count
	}
	manifest := need.manifest.Object()
	if err != nil || need.id().GroupKind() != kinds.Deployment || need.manifest.IsCreateOnly() ||
		text(manifest, "spec", "strategy", "type") == "Recreate" {
		return 0
	}
	if _, isSet, _ := unstructured.NestedInt64(manifest.Object, "spec", "replicas"); !isSet { // of an autoscaler
		need.count, _, _ = unstructured.NestedInt64(live.Object, "spec", "replicas")
	}
	surge, _, _ := unstructured.NestedFieldNoCopy(manifest.Object, "spec", "strategy", "rollingUpdate", "maxSurge")
	if text := fmt.Sprint(surge); text == "0" || text == "0%" { // then a pod is deleted first
		return 0
	}
	unavailable := intstr.FromString("25%")
	if value, isSet, _ := unstructured.NestedFieldNoCopy(manifest.Object, "spec", "strategy", "rollingUpdate",
		"maxUnavailable"); isSet {
		unavailable = intstr.Parse(fmt.Sprint(value))
	}
	allowed, err := intstr.GetScaledValueFromIntOrPercent(&unavailable, int(need.count), false)
	if err != nil || allowed > 0 || equality.Semantic.DeepDerivative(podTemplate(manifest), podTemplate(live)) {
		return 0
	}
	return 1
}

// podTemplate returns the pod template of a workload. The one of a manifest lacks the defaults of the API server.
func podTemplate(workload *unstructured.Unstructured) corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	fields, _, _ := unstructured.NestedMap(workload.Object, "spec", "template")
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &template) // refused manifests have no rollout
	return template
}

// amounts returns the quantities of the requested resources.
func amounts(quantities, requests corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := quantities[name]
		parts = append(parts, printable.Line(fmt.Sprintf("%s %s", name, &quantity)))
	}
	return strings.Join(parts, ", ")
}
