package capi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi/drainrules"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

// This file has the drain of a Node with the messages of Cluster API: the pods and the volumes that must leave the Node
// before its Machine is deleted.

// podRules returns the drain rules for the pods of a Machine. A rule that can't be read stops the drain, since it may
// keep a pod.
func (r *Reconciler) podRules(ctx context.Context, m *clusterv1.Machine,
	cluster *clusterv1.Cluster) (drain.PodRules, error) {
	var rules clusterv1.MachineDrainRuleList
	if err := r.server.List(ctx, &rules, client.InNamespace(m.Namespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the MachineDrainRules: %w", err)
	}
	return drainrules.PodRules(r.kubernetes, m, cluster, rules.Items)
}

const (
	maxPods     = 3 // pods named in a line
	maxRefusals = 5 // refusals with a line of their own
	maxVolumes  = 5 // volumes named in a line
)

// bullets returns the reasons why pods remain, in the words of Cluster API: a line for each reason.
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
		lines = append(lines, fmt.Sprintf("* %s: deletionTimestamp set, but still not removed from the Node",
			podList(pods)))
	}
	lines = append(lines, refusalLines(refusals)...)
	if pods := byHold[drain.Completion]; len(pods) > 0 {
		lines = append(lines, fmt.Sprintf("* %s: waiting for completion", podList(pods)))
	}
	const after = "After above Pods have been removed from the Node, "
	if pods := byHold[drain.Later]; len(pods) > 0 {
		lines = append(lines, after+"the following Pods will be evicted: "+few(pods, maxPods))
	}
	if pods := byHold[drain.CompletionLater]; len(pods) > 0 {
		lines = append(lines, after+"waiting for the following Pods to complete without eviction: "+few(pods, maxPods))
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
		if i < maxRefusals {
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
	return "Pods " + few(names, maxPods)
}

// few returns the first names, and how many more there are.
func few(names []string, most int) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s, ... (%d more)", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// attachedVolumes are the volumes attached to a node, by their identifiers, as in messages of Cluster API.
type attachedVolumes map[string]sets.Set[string]

const (
	claims         = "PersistentVolumeClaims"
	withoutClaim   = "PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim"
	onlyAtNode     = "Node with .status.volumesAttached entries not matching a PersistentVolume"
	onlyAttachment = "VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume"
)

// attachedVolumes returns descriptions of the volumes that are still attached to the Node. There is no wait for volumes
// of an unreachable Node, because they are never detached.
func (d *deletionScope) attachedVolumes(ctx context.Context) ([]string, error) {
	if d.node.isGone || drain.IsUnreachable(d.node.object) {
		return nil, nil
	}
	attached, err := d.findVolumes(ctx)
	if err != nil {
		return nil, err
	}
	return attached.lines(), nil
}

// findVolumes returns the volumes that are attached to the Node by its status and by VolumeAttachments, except for
// those of pods that draining leaves alone.
func (d *deletionScope) findVolumes(ctx context.Context) (attachedVolumes, error) {
	left := attachedVolumes{
		claims: sets.New[string](), withoutClaim: sets.New[string](), onlyAtNode: sets.New[string](),
		onlyAttachment: sets.New[string](),
	}
	for _, volume := range d.node.object.Status.VolumesAttached {
		left[onlyAtNode].Insert(string(volume.Name))
	}
	attachments, err := d.r.kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return left, fmt.Errorf("list the VolumeAttachments: %w", err)
	}
	for _, attachment := range attachments.Items {
		if name := attachment.Spec.Source.PersistentVolumeName; attachment.Status.Attached &&
			attachment.Spec.NodeName == d.node.object.Name && name != nil {
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
		left.resolve(volume, staying)
	}
	return left, nil
}

// resolve replaces the identifiers of an attached volume by its claim.
func (a attachedVolumes) resolve(volume corev1.PersistentVolume, staying sets.Set[string]) {
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
func (d *deletionScope) stayingClaims(ctx context.Context) (sets.Set[string], error) {
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
			lines = append(lines, fmt.Sprintf("* %s: %s", what, few(sets.List(a[what]), maxVolumes)))
		}
	}
	return lines
}
