package ready

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Dependencies are the objects of Needs that could be read.
type Dependencies struct {
	Nodes          []corev1.Node // nodes with pods of the workload
	MissingNodes   []string      // nodes of pods that do not exist
	AllNodes       []corev1.Node // all nodes of the cluster
	Claims         []corev1.PersistentVolumeClaim
	Classes        []storagev1.StorageClass // classes of the cluster; nil if they could not be listed
	MissingSecrets []string                 // image pull secrets of pods that do not exist
}

// Needs names the Dependencies that may keep pods from being ready.
type Needs struct {
	Nodes    []string // nodes with pods of the workload, the most pods first
	AllNodes bool     // the scheduler reports cordoned or tainted nodes
	Claims   []string // claims of pods that have no node because of a volume
	Secrets  []string // pull secrets of images
}

// NeedsOf returns the dependencies of unready pods.
func NeedsOf(pods []corev1.Pod) Needs {
	var needs Needs
	onNode := map[string]int{}
	for i := range pods {
		pod := &pods[i]
		if isSuspect(pod) {
			onNode[pod.Spec.NodeName]++
		}
		if refusal := refusalOf(pod); refusal != "" {
			needs.AllNodes = needs.AllNodes || strings.Contains(refusal, "taint") ||
				strings.Contains(refusal, "unschedulable")
			if lower := strings.ToLower(refusal); strings.Contains(lower, "volume") {
				needs.Claims = append(needs.Claims, claimsOf(pod)...)
			}
		}
		if slices.ContainsFunc(pod.Status.ContainerStatuses, cannotPull) ||
			slices.ContainsFunc(pod.Status.InitContainerStatuses, cannotPull) {
			needs.Secrets = append(needs.Secrets, pullSecretsOf(pod)...)
		}
	}
	for node := range onNode {
		needs.Nodes = append(needs.Nodes, node)
	}
	slices.SortFunc(needs.Nodes, func(a, b string) int { return cmp.Or(onNode[b]-onNode[a], cmp.Compare(a, b)) })
	slices.Sort(needs.Claims)
	slices.Sort(needs.Secrets)
	needs.Claims, needs.Secrets = slices.Compact(needs.Claims), slices.Compact(needs.Secrets)
	return needs
}

// isSuspect reports whether the node may prevent a pod from becoming ready or from ending: no
// container of the pod has failed.
func isSuspect(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	if pod.DeletionTimestamp != nil {
		return true
	}
	found := problemsOfPod(pod, nil)
	return len(found) > 0 && !slices.ContainsFunc(found, func(f rankedProblem) bool { return f.rank < unready })
}

// refusalOf returns the scheduler's message about a pod without a node.
func refusalOf(pod *corev1.Pod) string {
	if condition := podCondition(&pod.Status, corev1.PodScheduled); condition.Status == corev1.ConditionFalse {
		return condition.Message
	}
	return ""
}

func cannotPull(status corev1.ContainerStatus) bool {
	return status.State.Waiting != nil && slices.Contains(pullFailures, status.State.Waiting.Reason)
}

func pullSecretsOf(pod *corev1.Pod) []string {
	var names []string
	for _, secret := range pod.Spec.ImagePullSecrets {
		names = append(names, secret.Name)
	}
	return names
}

// claimsOf returns the names of the PersistentVolumeClaims of a pod. The claim of an ephemeral
// volume is named after the pod.
func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

// problemsOfNodes returns the problems of nodes that are not ready or do not exist, and the
// pods on these nodes, whose own problems are not reported.
func (d Dependencies) problemsOfNodes(pods []corev1.Pod) (found []rankedProblem, isReported map[string]bool) {
	states := map[string]string{}
	for _, name := range d.MissingNodes {
		states[name] = "it does not exist any more"
	}
	for i := range d.Nodes {
		if ready := nodeReady(&d.Nodes[i]); ready.Status != corev1.ConditionTrue {
			states[d.Nodes[i].Name] = "it has been NotReady since " + moment(ready.LastTransitionTime.Time)
		}
	}
	unready, leaving, isReported := map[string]int{}, map[string]int{}, map[string]bool{}
	for i := range pods {
		node := pods[i].Spec.NodeName
		switch {
		case states[node] == "" || !isSuspect(&pods[i]):
		case pods[i].DeletionTimestamp != nil:
			leaving[node]++
		default:
			unready[node]++
			isReported[pods[i].Name] = true
		}
	}
	for name, state := range states {
		message := state
		if n := unready[name]; n > 0 {
			message += fmt.Sprintf("; %d of its pods %s as not ready", n,
				map[bool]string{true: "counts", false: "count"}[n == 1])
		}
		if n := leaving[name]; n > 0 {
			message += fmt.Sprintf("; %d of its pods can't end", n)
		}
		found = append(found, dependencyProblem(kinds.Node, name, message))
	}
	return found, isReported
}

func nodeReady(node *corev1.Node) corev1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition
		}
	}
	return corev1.NodeCondition{LastTransitionTime: node.CreationTimestamp} // the node has never been ready
}

func moment(when time.Time) string { return when.UTC().Format(time.RFC3339) }

// unschedulableNodes lists the nodes that a pod can't be scheduled to because they are cordoned, not
// ready or tainted, with the time of the taint if it has one.
func (d Dependencies) unschedulableNodes(pod *corev1.Pod) string {
	nodes := map[string][]string{}
	for i := range d.AllNodes {
		node := &d.AllNodes[i]
		for _, taint := range taintsOf(node) {
			isTolerated := func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, true) }
			if taint.Effect == corev1.TaintEffectPreferNoSchedule ||
				slices.ContainsFunc(pod.Spec.Tolerations, isTolerated) {
				continue
			}
			taintState, since, ready := "taint "+taint.ToString(), taint.TimeAdded, nodeReady(node)
			switch taint.Key {
			case corev1.TaintNodeUnschedulable:
				taintState = "cordoned"
			case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
				taintState, since = "NotReady", &ready.LastTransitionTime
			}
			name := node.Name
			if since != nil {
				name += " since " + moment(since.Time)
			}
			if !slices.Contains(nodes[taintState], name) {
				nodes[taintState] = append(nodes[taintState], name)
			}
		}
	}
	text := ""
	for _, taintState := range slices.Sorted(maps.Keys(nodes)) {
		text += "; " + taintState + ": " + printable.Few(nodes[taintState], 3)
	}
	return text
}

// taintsOf returns the taints of a node. The taint of a cordoned node is added by a controller a moment later.
func taintsOf(node *corev1.Node) []corev1.Taint {
	isCordon := func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable }
	if !node.Spec.Unschedulable || slices.ContainsFunc(node.Spec.Taints, isCordon) {
		return node.Spec.Taints
	}
	return append([]corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}},
		node.Spec.Taints...)
}

// problemsOfClaims returns the problems of claims that are not bound because of their
// StorageClass, or because provisioning a volume failed.
func (d Dependencies) problemsOfClaims(newest map[eventKey]*corev1.Event) []rankedProblem {
	var found []rankedProblem
	for i := range d.Claims {
		claim := &d.Claims[i]
		message := d.storageClassProblem(claim)
		if event := newest[eventKey{kinds.PersistentVolumeClaim.Kind, claim.Namespace, claim.Name,
			"ProvisioningFailed"}]; event != nil && message == "" {
			message = event.Message
		}
		if claim.Status.Phase != corev1.ClaimBound && message != "" {
			found = append(found, dependencyProblem(kinds.PersistentVolumeClaim, claim.Namespace+"/"+claim.Name,
				"it is not bound: "+message))
		}
	}
	return found
}

// storageClassProblem returns a message if the StorageClass of a claim does not exist. The message names the existing
// classes.
func (d Dependencies) storageClassProblem(claim *corev1.PersistentVolumeClaim) string {
	name := claim.Spec.StorageClassName
	var names []string
	for _, class := range d.Classes {
		isDefault := class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
		if name != nil && *name == class.Name || name == nil && isDefault {
			return ""
		}
		names = append(names, class.Name)
	}
	existing := "there are none"
	if len(names) > 0 {
		existing = "there are " + printable.Few(names, 3)
	}
	switch {
	case d.Classes == nil || name != nil && *name == "": // a claim of a volume without a class
		return ""
	case name == nil:
		return "it names no StorageClass, and none is the default; " + existing
	default:
		return "StorageClass " + *name + " does not exist; " + existing
	}
}

// problemsOfSecrets returns the missing pull secrets, with the number of pods that refer to each.
func (d Dependencies) problemsOfSecrets(pods []corev1.Pod) []rankedProblem {
	var found []rankedProblem
	for _, name := range d.MissingSecrets {
		users := 0
		for i := range pods {
			if slices.Contains(pullSecretsOf(&pods[i]), name) {
				users++
			}
		}
		found = append(found, dependencyProblem(kinds.Secret, pods[0].Namespace+"/"+name,
			"does not exist; needed to pull the images of "+printable.Count(users, "pod")))
	}
	return found
}

// dependencyProblem returns a problem of an object that pods depend on. Claims with the same message
// are grouped; nodes and Secrets are not.
func dependencyProblem(kind schema.GroupKind, name, message string) rankedProblem {
	object := kind.Kind + " " + name
	alike := message
	if kind != kinds.PersistentVolumeClaim {
		alike = object
	}
	return rankedProblem{
		PodProblem: PodProblem{Object: printable.Line(object), Message: sentence(message)},
		rank:       depends,
		alike:      alike,
	}
}
