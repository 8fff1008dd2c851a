package capi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

// This file is about what leaves a Node before its Machine goes: pods, by drain rules and in Cluster API's words, and volumes.

// podRules returns the drain rules for the pods of a Machine: the label of a pod, then the first MachineDrainRule, by name,
// that matches the Machine and the pod. A rule that can't be read stops the drain, since it may keep a pod.
func (r *ClusterAPIReconciler) podRules(ctx context.Context, m *clusterv1.Machine, cluster *clusterv1.Cluster) (drain.PodRules, error) {
	var all clusterv1.MachineDrainRuleList
	if err := r.server.List(ctx, &all, client.InNamespace(m.Namespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the MachineDrainRules: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b clusterv1.MachineDrainRule) int { return strings.Compare(a.Name, b.Name) })
	var rules []clusterv1.MachineDrainRule
	for _, rule := range all.Items {
		isFor, err := isForMachine(rule, m, cluster)
		if err == nil {
			err = checkPodSelectors(rule)
		}
		if err != nil {
			return nil, fmt.Errorf("read MachineDrainRule %s: %w", rule.Name, err)
		}
		if isFor {
			rules = append(rules, rule)
		}
	}
	namespaces := namespaceLabels{client: r.kubernetes, known: map[string]labels.Set{}}
	return func(ctx context.Context, pod *corev1.Pod) (drain.PodRule, error) {
		return ruleOf(ctx, pod, rules, namespaces)
	}, nil
}

// ruleOf returns the rule of a pod.
func ruleOf(ctx context.Context, pod *corev1.Pod, rules []clusterv1.MachineDrainRule, namespaces namespaceLabels) (drain.PodRule, error) {
	switch value := pod.Labels[clusterv1.PodDrainLabel]; {
	case strings.EqualFold(value, "skip"):
		return drain.PodRule{Behavior: drain.SkipPod}, nil
	case strings.EqualFold(value, "wait-completed"), strings.EqualFold(value, "waitcompleted"):
		return drain.PodRule{Behavior: drain.WaitCompleted}, nil
	}
	for _, rule := range rules {
		isFor, err := isForPod(ctx, rule, pod, namespaces)
		if err != nil {
			return drain.PodRule{}, err
		}
		if isFor {
			return drain.PodRule{Behavior: drain.PodBehavior(rule.Spec.Drain.Behavior), Order: ptr.Deref(rule.Spec.Drain.Order, 0)}, nil
		}
	}
	return drain.PodRule{Behavior: drain.EvictPod}, nil
}

// isForMachine reports whether a rule matches a Machine: one of its entries does, or it has none.
func isForMachine(rule clusterv1.MachineDrainRule, m *clusterv1.Machine, cluster *clusterv1.Cluster) (bool, error) {
	isFor := len(rule.Spec.Machines) == 0
	var problems []error
	for _, entry := range rule.Spec.Machines {
		ofMachine, err := selects(entry.Selector, m.Labels)
		ofCluster, clusterErr := selects(entry.ClusterSelector, cluster.Labels)
		problems = append(problems, err, clusterErr)
		isFor = isFor || ofMachine && ofCluster
	}
	return isFor, errors.Join(problems...)
}

// isForPod reports whether a rule matches a pod: one of its entries does, or it has none.
func isForPod(ctx context.Context, rule clusterv1.MachineDrainRule, pod *corev1.Pod, namespaces namespaceLabels) (bool, error) {
	for _, entry := range rule.Spec.Pods {
		ofPod, err := selects(entry.Selector, pod.Labels)
		if err != nil || !ofPod {
			continue
		}
		if entry.NamespaceSelector == nil {
			return true, nil
		}
		labels, err := namespaces.of(ctx, pod.Namespace)
		if err != nil {
			return false, err
		}
		if ofNamespace, _ := selects(entry.NamespaceSelector, labels); ofNamespace {
			return true, nil
		}
	}
	return len(rule.Spec.Pods) == 0, nil
}

// checkPodSelectors returns an error if a selector for pods can't be read.
func checkPodSelectors(rule clusterv1.MachineDrainRule) error {
	var problems []error
	for _, entry := range rule.Spec.Pods {
		_, err := selects(entry.Selector, nil)
		_, namespaceErr := selects(entry.NamespaceSelector, nil)
		problems = append(problems, err, namespaceErr)
	}
	return errors.Join(problems...)
}

// selects reports whether a selector selects labels. Without a selector all labels are selected.
func selects(selector *metav1.LabelSelector, set labels.Set) (bool, error) {
	if selector == nil {
		return true, nil
	}
	read, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && read.Matches(set), err
}

// namespaceLabels reads the labels of namespaces, each once, and only where a rule needs them.
type namespaceLabels struct {
	client kubernetes.Interface
	known  map[string]labels.Set
}

func (n namespaceLabels) of(ctx context.Context, name string) (labels.Set, error) {
	if set, ok := n.known[name]; ok {
		return set, nil
	}
	namespace, err := n.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get Namespace %s: %w", name, err)
	}
	n.known[name] = namespace.Labels
	return namespace.Labels, nil
}

const (
	mostPods     = 3 // that a line names
	mostRefusals = 5 // that have a line of their own
	mostVolumes  = 5 // that a line names
)

// bullets returns what holds the remaining pods, a line for each cause, in Cluster API's words.
func bullets(left []drain.HeldPod) []string {
	byHold, refusals := map[drain.PodHold][]string{}, map[string][]string{}
	for _, pod := range left {
		name := pod.Namespace + "/" + pod.Name
		switch pod.Hold {
		case drain.Budget, drain.Refused, drain.ToBeEvicted:
			refusals[refusalOf(pod)] = append(refusals[refusalOf(pod)], name)
		case drain.Finalizers:
			byHold[drain.Ending] = append(byHold[drain.Ending], name)
		default:
			byHold[pod.Hold] = append(byHold[pod.Hold], name)
		}
	}
	var lines []string
	if pods := byHold[drain.Ending]; len(pods) > 0 {
		lines = append(lines, fmt.Sprintf("* %s: deletionTimestamp set, but still not removed from the Node", podList(pods)))
	}
	lines = append(lines, refusalLines(refusals)...)
	if pods := byHold[drain.Completion]; len(pods) > 0 {
		lines = append(lines, fmt.Sprintf("* %s: waiting for completion", podList(pods)))
	}
	const after = "After above Pods have been removed from the Node, "
	if pods := byHold[drain.Later]; len(pods) > 0 {
		lines = append(lines, after+"the following Pods will be evicted: "+few(pods, mostPods))
	}
	if pods := byHold[drain.CompletionLater]; len(pods) > 0 {
		lines = append(lines, after+"waiting for the following Pods to complete without eviction: "+few(pods, mostPods))
	}
	return lines
}

// refusalOf returns why a pod was not evicted.
func refusalOf(pod drain.HeldPod) string {
	if rest, ok := strings.CutPrefix(pod.Refusal, "Cannot evict pod as it would violate"); ok {
		return "cannot evict pod as it would violate" + rest
	}
	if pod.Refusal == "" {
		return "failed to evict Pod, " + pod.Message
	}
	return "failed to evict Pod, " + pod.Refusal
}

// refusalLines returns a line for each of the first refusals, and one for the others.
func refusalLines(refusals map[string][]string) []string {
	var lines []string
	others := 0
	for i, refusal := range slices.Sorted(maps.Keys(refusals)) {
		if i < mostRefusals {
			lines = append(lines, fmt.Sprintf("* %s: %s", podList(refusals[refusal]), refusal))
		} else {
			others += len(refusals[refusal])
		}
	}
	switch others {
	case 0:
	case 1:
		lines = append(lines, "* 1 Pod with other issues")
	default:
		lines = append(lines, fmt.Sprintf("* %d Pods with other issues", others))
	}
	return lines
}

func podList(names []string) string {
	if len(names) == 1 {
		return "Pod " + names[0]
	}
	return "Pods " + few(names, mostPods)
}

// few returns the first names, and how many more there are.
func few(names []string, most int) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s, ... (%d more)", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// attachedVolumes are the volumes that are attached to a node, by what identifies them, in Cluster API's words.
type attachedVolumes map[string]sets.Set[string]

const (
	claims         = "PersistentVolumeClaims"
	withoutClaim   = "PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim"
	onlyAtNode     = "Node with .status.volumesAttached entries not matching a PersistentVolume"
	onlyAttachment = "VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume"
)

// attachedVolumes returns the volumes that are still attached to the Node, in words. Those of an unreachable Node are never
// detached, so they are not waited for.
func (d *deletionPass) attachedVolumes(ctx context.Context) ([]string, error) {
	if d.node.isGone || drain.IsUnreachable(d.node.object) {
		return nil, nil
	}
	attached, err := d.findVolumes(ctx)
	if err != nil {
		return nil, err
	}
	return attached.lines(), nil
}

// findVolumes returns the volumes that are attached to the Node by its status and by VolumeAttachments, except for those
// of pods that draining leaves alone.
func (d *deletionPass) findVolumes(ctx context.Context) (attachedVolumes, error) {
	left := attachedVolumes{
		claims: sets.New[string](), withoutClaim: sets.New[string](), onlyAtNode: sets.New[string](), onlyAttachment: sets.New[string](),
	}
	for _, volume := range d.node.object.Status.VolumesAttached {
		left[onlyAtNode].Insert(string(volume.Name))
	}
	attachments, err := d.r.kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return left, fmt.Errorf("list the VolumeAttachments: %w", err)
	}
	for _, attachment := range attachments.Items {
		if name := attachment.Spec.Source.PersistentVolumeName; attachment.Status.Attached && attachment.Spec.NodeName == d.node.object.Name && name != nil {
			left[onlyAttachment].Insert(*name)
		}
	}
	if len(left[onlyAtNode]) == 0 && len(left[onlyAttachment]) == 0 {
		return left, nil
	}
	staying, err := d.stayingClaims(ctx)
	if err != nil {
		return left, err
	}
	volumes, err := d.r.kubernetes.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return left, fmt.Errorf("list the PersistentVolumes: %w", err)
	}
	for _, volume := range volumes.Items {
		left.know(volume, staying)
	}
	return left, nil
}

// know replaces the identifiers of a volume that is attached by its claim.
func (a attachedVolumes) know(volume corev1.PersistentVolume, staying sets.Set[string]) {
	isAttached := a[onlyAttachment].Has(volume.Name)
	a[onlyAttachment].Delete(volume.Name)
	if csi := volume.Spec.CSI; csi != nil {
		name := fmt.Sprintf("kubernetes.io/csi/%s^%s", csi.Driver, csi.VolumeHandle)
		isAttached = isAttached || a[onlyAtNode].Has(name)
		a[onlyAtNode].Delete(name)
	}
	claim := volume.Spec.ClaimRef
	switch {
	case !isAttached:
	case claim == nil || claim.Kind != "PersistentVolumeClaim":
		a[withoutClaim].Insert(volume.Name)
	case !staying.Has(claim.Namespace + "/" + claim.Name):
		a[claims].Insert(claim.Namespace + "/" + claim.Name)
	}
}

// stayingClaims returns the claims of pods that draining leaves alone.
func (d *deletionPass) stayingClaims(ctx context.Context) (sets.Set[string], error) {
	rules, err := d.r.podRules(ctx, d.m, d.cluster)
	if err != nil {
		return nil, err
	}
	pods, err := drain.StayingPods(ctx, d.r.kubernetes, d.node.object, rules)
	staying := sets.New[string]()
	for _, pod := range pods {
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				staying.Insert(pod.Namespace + "/" + volume.PersistentVolumeClaim.ClaimName)
			}
		}
	}
	return staying, err
}

// lines returns the attached volumes.
func (a attachedVolumes) lines() []string {
	var lines []string
	for _, what := range []string{claims, withoutClaim, onlyAtNode, onlyAttachment} {
		if len(a[what]) > 0 {
			lines = append(lines, fmt.Sprintf("* %s: %s", what, few(sets.List(a[what]), mostVolumes)))
		}
	}
	return lines
}
