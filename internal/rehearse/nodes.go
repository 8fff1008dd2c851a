package rehearse

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// nodeRoles are labels that all nodes of the rehearsal have.
var nodeRoles = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
	"node-role.kubernetes.io/worker"}

// labelNodes sets the labels by which pods of the releases select their nodes. Each node gets one value of each label,
// and its own zone.
func (s *supplier) labelNodes(ctx context.Context) error {
	nodes, err := s.cluster.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	wanted := wantedLabels(s.old, s.new)
	for i, node := range nodes.Items {
		labels := map[string]string{
			corev1.LabelTopologyRegion: "rehearsal",
			corev1.LabelTopologyZone:   fmt.Sprintf("zone-%d", i+1),
		}
		for _, role := range nodeRoles {
			labels[role] = ""
		}
		for key, values := range wanted {
			all := slices.Sorted(maps.Keys(values))
			labels[key] = all[i%len(all)]
		}
		for key := range node.Labels {
			delete(labels, key)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		if _, err := s.cluster.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// wantedLabels returns the labels of nodes that pods of the releases require, with their values.
func wantedLabels(releases ...*payload.Payload) map[string]map[string]bool {
	values := map[string]map[string]bool{}
	add := func(key, value string) {
		if values[key] == nil {
			values[key] = map[string]bool{}
		}
		values[key][value] = true
	}
	for _, release := range releases {
		for _, m := range manifestsOf(release) {
			for key, value := range nodeLabelsOf(m) {
				if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
					add(key, value)
				}
			}
		}
	}
	return values
}

// nodeLabelsOf returns the labels that a node must have for the pods of a manifest.
func nodeLabelsOf(m *payload.Manifest) map[string]string {
	path := kinds.PodSpec(m.ID().GroupKind())
	fields, found, _ := unstructured.NestedMap(m.Object().Object, path...)
	if path == nil || !found {
		return nil
	}
	var spec corev1.PodSpec
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec) != nil {
		return nil // the API server refuses the spec
	}
	labels := maps.Clone(spec.NodeSelector)
	if labels == nil {
		labels = map[string]string{}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return labels
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for _, term := range terms[:min(1, len(terms))] { // one of the terms is enough
		for _, expression := range term.MatchExpressions {
			switch expression.Operator {
			case corev1.NodeSelectorOpIn:
				if len(expression.Values) > 0 { // the API server refuses an expression without values
					labels[expression.Key] = expression.Values[0]
				}
			case corev1.NodeSelectorOpExists:
				if _, isSet := labels[expression.Key]; !isSet {
					labels[expression.Key] = ""
				}
			}
		}
	}
	return labels
}
