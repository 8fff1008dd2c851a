package capi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// updateTaints sets the taints of a Machine on its Node. Taints with the propagation Always are restored, and removed when
// the Machine no longer has them: an annotation of the Node records which were set. The others are set once, on a Node
// without that annotation.
func updateTaints(node *corev1.Node, wanted []clusterv1.MachineTaint) {
	noted, isInitialized := node.Annotations[clusterv1.TaintsFromMachineAnnotation]
	var kept, always []string
	for _, taint := range wanted {
		id := taintID(taint.Key, taint.Effect)
		kept = append(kept, id)
		if taint.Propagation == clusterv1.MachineTaintPropagationAlways {
			always = append(always, id)
		} else if isInitialized {
			continue
		}
		setTaint(node, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	before := strings.Split(noted, ",")
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		id := taintID(t.Key, t.Effect)
		return t.MatchTaint(&clusterv1.NodeUninitializedTaint) || slices.Contains(before, id) && !slices.Contains(kept, id)
	})
	slices.Sort(always)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, clusterv1.TaintsFromMachineAnnotation, strings.Join(always, ","))
}

// taintID identifies a taint in the annotation of a Node: a Node has one taint of each key and effect.
func taintID(key string, effect corev1.TaintEffect) string { return key + ":" + string(effect) }

// setTaint sets a taint on a Node, with its value.
func setTaint(node *corev1.Node, taint corev1.Taint) {
	i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) })
	switch {
	case i < 0:
		node.Spec.Taints = append(node.Spec.Taints, taint)
	case node.Spec.Taints[i].Value != taint.Value:
		node.Spec.Taints[i] = taint
	}
}
