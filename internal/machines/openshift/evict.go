package openshift

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// mostLeftPods is how many pods that are left on a node an event names.
const mostLeftPods = 5

// evict evicts the pods of the node, and remembers what is left: first what does not leave by itself. Finalizers count
// as such when they hold a pod the second time; those of Jobs, for example, go at once.
func (d *machineDeletion) evict(ctx context.Context) {
	pods, err := d.evictPods(ctx)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	var stuck, ending []string
	for _, pod := range pods {
		isKept := pod.Hold == drain.Finalizers && slices.Contains(d.known.drain.Left, pod.Message)
		if isKept || pod.Hold == drain.Budget || pod.Hold == drain.Refused {
			stuck = append(stuck, pod.Message)
		} else {
			ending = append(ending, pod.Message)
		}
	}
	d.known.drain = d.known.drain.Evicted(append(stuck, ending...), len(stuck) > 0, problem)
	d.hasLooked = true
}

// evictPods evicts the pods that were on the node when it was cordoned, and those that have come since, but for those that tolerate
// the cordon: the Deployment of such a pod replaces it on the same node each time that it is evicted, and the drain would never
// end. They end with the node.
func (d *machineDeletion) evictPods(ctx context.Context) ([]drain.HeldPod, error) {
	listed := sets.New[types.UID]()
	var left []string
	pods, err := drain.EvictByRules(ctx, d.kubernetes, d.node, func(_ context.Context, pod *corev1.Pod) (drain.PodRule, error) {
		listed.Insert(pod.UID)
		toleration := drain.CordonToleration(pod)
		if d.known.cordonedPods == nil || d.known.cordonedPods.Has(pod.UID) || toleration == "" {
			return drain.PodRule{Behavior: drain.EvictPod}, nil
		}
		left = append(left, fmt.Sprintf("pod %s/%s (toleration %s)", pod.Namespace, pod.Name, toleration))
		return drain.PodRule{Behavior: drain.SkipPod}, nil
	})
	if err == nil && d.known.cordonedPods == nil {
		d.known.cordonedPods = listed
	}
	if len(left) > 0 {
		slices.Sort(left)
		d.recordDrainEvent("DrainLeavesPods", fmt.Sprintf("These pods came after node %q was cordoned, tolerate that, and end with the node: %s",
			d.node.Name, printable.Few(left, mostLeftPods)), "")
	}
	return pods, err
}
