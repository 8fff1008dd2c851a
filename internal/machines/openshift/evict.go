package openshift

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// mostLeftPods is how many remaining pods an event names.
const mostLeftPods = 5

// evict evicts the pods of the node, unless it is too early for that, and returns what the drain waits for; nil if no pods
// remain. Stuck pods are named first. A pod with finalizers counts as stuck at the second check; those of Jobs, for example,
// are removed at once.
func (d *deletionPass) evict(ctx context.Context) *deletion.DeletionWait {
	now := d.r.options.Now()
	isDue := !now.Before(d.known.drainUntil)
	if isDue {
		d.known.drain = d.evictOnce(ctx)
	}
	wait := d.known.drain.wait()
	if wait == nil {
		return nil
	}
	if isDue {
		d.known.drainUntil = now.Add(d.r.bounded(wait.After))
	}
	wait.After = max(d.known.drainUntil.Sub(now), time.Millisecond)
	return wait
}

func (d *deletionPass) evictOnce(ctx context.Context) drainProgress {
	pods, err := d.evictPods(ctx)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	var stuck, ending []string
	for _, pod := range pods {
		isKept := pod.Hold == drain.Finalizers && slices.Contains(d.known.drain.left, pod.Message)
		if isKept || pod.Hold == drain.Budget || pod.Hold == drain.Refused {
			stuck = append(stuck, pod.Message)
		} else {
			ending = append(ending, pod.Message)
		}
	}
	return d.known.drain.evicted(append(stuck, ending...), len(stuck) > 0, problem)
}

// evictPods evicts the pods that were on the node when it was cordoned, and those that were scheduled since, except for those that
// tolerate the cordon: their Deployment would replace each evicted pod on the same node, and the drain would never end. They are
// terminated with the node.
func (d *deletionPass) evictPods(ctx context.Context) ([]drain.HeldPod, error) {
	listed := sets.New[types.UID]()
	var left []string
	pods, err := drain.Evict(ctx, d.r.kubernetes, d.node, func(_ context.Context, pod *corev1.Pod) (drain.PodRule, error) {
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
