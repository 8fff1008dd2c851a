package precondition

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxNodes limits the Nodes that are read.
const maxNodes = 1000

// readNodes finds Nodes that are not ready, and workloads for whose pods the Nodes lack room. It reads nothing for a
// release without pods. Without the right to list Nodes, it finds nothing.
func (f *Facts) readNodes(ctx context.Context, c *cluster.Cluster, places []place) {
	needs := podNeeds(places)
	if len(needs) == 0 {
		return
	}
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: maxNodes})
	if err != nil {
		return
	}
	room := &nodesRoom{cluster: c, free: map[string]corev1.ResourceList{}}
	for i := range list.Items {
		node := &list.Items[i]
		if ready := readiness(node); ready.Status != corev1.ConditionTrue {
			f.NotReady = append(f.NotReady, Obstacle{
				ID: kinds.NewID(kinds.Node, "", node.Name), Since: ready.LastTransitionTime.Time,
				// without the message, which may have an age
				Why: fmt.Sprintf("not ready (%s), so pods of the release can't start or end there",
					printable.Line(ready.Reason)),
				Resolution: "repairing it, or deleting the Node if its machine no longer exists",
			})
		} else if !node.Spec.Unschedulable {
			room.nodes = append(room.nodes, node)
		}
	}
	if list.Continue == "" && len(room.nodes) > 0 { // otherwise, other Nodes may have room
		f.Shortages = room.findShortages(ctx, needs)
	}
}

// readiness returns the condition Ready of a Node.
func readiness(node *corev1.Node) corev1.NodeCondition {
	index := slices.IndexFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady
	})
	if index < 0 {
		return corev1.NodeCondition{Reason: "NoCondition", LastTransitionTime: node.CreationTimestamp}
	}
	return node.Status.Conditions[index]
}
