package drain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// cordonTaint is the taint by which the scheduler treats spec.unschedulable. The node lifecycle controller writes it into the
// node soon after.
var cordonTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// CordonToleration returns the toleration of a pod by which it is scheduled to a cordoned node, as in a manifest; "" if the pod
// has none. Once such a pod is evicted, its controller creates another one, which may be scheduled to the same node.
func CordonToleration(pod *corev1.Pod) string {
	at := slices.IndexFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &cordonTaint, false)
	})
	if at < 0 {
		return ""
	}
	toleration := pod.Spec.Tolerations[at]
	var fields []string
	for _, field := range [][2]string{
		{"key", toleration.Key}, {"operator", string(toleration.Operator)}, {"value", toleration.Value}, {"effect", string(toleration.Effect)},
	} {
		if field[1] != "" {
			fields = append(fields, fmt.Sprintf("%s: %s", field[0], field[1]))
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// cordonedAt returns when a node was cordoned; zero if its taint has no time.
func cordonedAt(node *corev1.Node) metav1.Time {
	for _, taint := range node.Spec.Taints {
		if taint.MatchTaint(&cordonTaint) && taint.TimeAdded != nil {
			return *taint.TimeAdded
		}
	}
	return metav1.Time{}
}

// isAfterCordon reports whether a pod was scheduled to the node after the cordon. Times are whole seconds: a pod of the same second
// counts as a later one, since a drain evicts pods at once after the cordon, and others replace them.
func (p *pass) isAfterCordon(pod *corev1.Pod) bool {
	return !p.cordonedAt.IsZero() && !pod.CreationTimestamp.Before(&p.cordonedAt)
}
