package capi

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/machines/drain"
)

// attachedVolumes are the volumes that are attached to a node, by what identifies them.
type attachedVolumes struct{ claims, withoutClaim, onlyAtNode, onlyAttachment map[string]bool }

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
		claims: map[string]bool{}, withoutClaim: map[string]bool{}, onlyAtNode: map[string]bool{}, onlyAttachment: map[string]bool{},
	}
	for _, volume := range d.node.object.Status.VolumesAttached {
		left.onlyAtNode[string(volume.Name)] = true
	}
	attachments, err := d.r.kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return left, fmt.Errorf("list the VolumeAttachments: %w", err)
	}
	for _, attachment := range attachments.Items {
		if name := attachment.Spec.Source.PersistentVolumeName; attachment.Status.Attached && attachment.Spec.NodeName == d.node.object.Name && name != nil {
			left.onlyAttachment[*name] = true
		}
	}
	if len(left.onlyAtNode) == 0 && len(left.onlyAttachment) == 0 {
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
func (a attachedVolumes) know(volume corev1.PersistentVolume, staying map[string]bool) {
	isAttached := a.onlyAttachment[volume.Name]
	delete(a.onlyAttachment, volume.Name)
	if csi := volume.Spec.CSI; csi != nil {
		name := fmt.Sprintf("kubernetes.io/csi/%s^%s", csi.Driver, csi.VolumeHandle)
		isAttached = isAttached || a.onlyAtNode[name]
		delete(a.onlyAtNode, name)
	}
	claim := volume.Spec.ClaimRef
	switch {
	case !isAttached:
	case claim == nil || claim.Kind != "PersistentVolumeClaim":
		a.withoutClaim[volume.Name] = true
	case !staying[claim.Namespace+"/"+claim.Name]:
		a.claims[claim.Namespace+"/"+claim.Name] = true
	}
}

// stayingClaims returns the claims of pods that draining leaves alone.
func (d *deletionPass) stayingClaims(ctx context.Context) (map[string]bool, error) {
	rules, err := d.r.podRules(ctx, d.m, d.cluster)
	if err != nil {
		return nil, err
	}
	pods, err := drain.StayingPods(ctx, d.r.kubernetes, d.node.object, rules)
	claims := map[string]bool{}
	for _, pod := range pods {
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				claims[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName] = true
			}
		}
	}
	return claims, err
}

// lines returns the attached volumes, in Cluster API's words.
func (a attachedVolumes) lines() []string {
	var lines []string
	for _, group := range []struct {
		what  string
		names map[string]bool
	}{
		{"PersistentVolumeClaims", a.claims},
		{"PersistentVolumes without a .spec.claimRef to a PersistentVolumeClaim", a.withoutClaim},
		{"Node with .status.volumesAttached entries not matching a PersistentVolume", a.onlyAtNode},
		{"VolumeAttachment with .spec.source.persistentVolumeName not matching a PersistentVolume", a.onlyAttachment},
	} {
		if len(group.names) > 0 {
			lines = append(lines, fmt.Sprintf("* %s: %s", group.what, few(slices.Collect(maps.Keys(group.names)), mostVolumes)))
		}
	}
	return lines
}
