package openshift

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxRemainingPods limits how many remaining pods an event names.
const maxRemainingPods = 5

// evict evicts the pods of the node, unless it is too early for that, and returns the reason why the drain waits; nil
// if no pods remain. Stuck pods are named first. A pod with finalizers counts as stuck at the second check; those of
// Jobs, for example, are removed at once.
func (d *deletionScope) evict(ctx context.Context) *deletion.Wait {
	now := d.r.options.Now()
	isDue := !now.Before(d.memory.drainUntil)
	if isDue {
		d.memory.drain = d.evictOnce(ctx)
	}
	wait := d.memory.drain.wait()
	if wait == nil {
		return nil
	}
	if isDue {
		d.memory.drainUntil = now.Add(d.r.bounded(wait.After))
	}
	wait.After = max(d.memory.drainUntil.Sub(now), time.Millisecond)
	return wait
}

func (d *deletionScope) evictOnce(ctx context.Context) drainProgress {
	pods, err := d.evictPods(ctx)
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	var stuck, ending []string
	for _, pod := range pods {
		isKept := pod.Hold == drain.Finalizers && slices.Contains(d.memory.drain.remaining, pod.Message)
		if isKept || pod.Hold == drain.Budget || pod.Hold == drain.Refused {
			stuck = append(stuck, pod.Message)
		} else {
			ending = append(ending, pod.Message)
		}
	}
	return d.memory.drain.afterEviction(append(stuck, ending...), len(stuck) > 0, problem)
}

// evictPods evicts the pods that were on the node when it was cordoned, and those that were scheduled since, except for
// those that tolerate the cordon: their Deployment would replace each evicted pod on the same node, and the drain would
// never end. They are terminated with the node.
func (d *deletionScope) evictPods(ctx context.Context) ([]drain.HeldPod, error) {
	listed := sets.New[types.UID]()
	var remaining []string
	pods, err := drain.Evict(ctx, d.r.kubernetes, d.node,
		func(_ context.Context, pod *corev1.Pod) (drain.PodRule, error) {
			listed.Insert(pod.UID)
			toleration := drain.CordonToleration(pod)
			if d.memory.cordonedPods == nil || d.memory.cordonedPods.Has(pod.UID) || toleration == "" {
				return drain.PodRule{Behavior: drain.EvictPod}, nil
			}
			remaining = append(remaining, fmt.Sprintf("pod %s/%s (toleration %s)", pod.Namespace, pod.Name, toleration))
			return drain.PodRule{Behavior: drain.SkipPod}, nil
		})
	if err == nil && d.memory.cordonedPods == nil {
		d.memory.cordonedPods = listed
	}
	if len(remaining) > 0 {
		slices.Sort(remaining)
		d.recordDrainEvent("DrainLeavesPods",
			fmt.Sprintf("These pods came after node %q was cordoned, tolerate that, and end with the node: %s",
				d.node.Name, printable.Few(remaining, maxRemainingPods)), "")
	}
	return pods, err
}

const (
	// podsEndSoon is the first interval at which terminating pods are checked, and podsEndSeldom the longest one.
	podsEndSoon, podsEndSeldom = time.Second, 10 * time.Second
	// A refused eviction is retried after 5 s, and then after twice as long each time, up to a minute: an
	// administrator who loosens a disruption budget waits for the next retry.
	refusedSoon, refusedSeldom = 5 * time.Second, time.Minute
	// patientLooks is the number of checks of terminating pods before they are reported as a problem: half a minute.
	patientLooks = 5
	// maxPods limits how many of the remaining pods are shown: a node may have hundreds.
	maxPods = 5
)

// drainProgress is the progress of draining a node. It is a value, and decides how long a drain waits.
type drainProgress struct {
	remaining []string // a message about each remaining pod; the first ones are shown
	problem   string   // the reason why the pods could not be listed or evicted
	isStuck   bool     // an eviction is refused, or finalizers hold a pod, so that waiting alone does not help
	looks     int      // number of evictions since the number of pods last fell
}

// afterEviction returns the progress after another eviction of pods. If there was a problem, remaining and isStuck are
// not known.
func (p drainProgress) afterEviction(remaining []string, isStuck bool, problem string) drainProgress {
	after := drainProgress{remaining: remaining, problem: problem, isStuck: isStuck, looks: p.looks + 1}
	if problem == "" && p.problem == "" && len(remaining) < len(p.remaining) {
		after.looks = 1
	}
	return after
}

// wait returns the reason why the drain waits; nil if no pods remain.
func (p drainProgress) wait() *deletion.Wait {
	if p.problem == "" && len(p.remaining) == 0 {
		return nil
	}
	wait := &deletion.Wait{Stage: deletion.Draining, Reason: deletion.PodsEnd, Message: fewPods(p.remaining)}
	if p.problem != "" {
		wait.Message = p.problem
	}
	if p.problem != "" || p.isStuck || p.looks > patientLooks {
		wait.Reason = deletion.DrainError
	}
	wait.After = backoff(refusedSoon, p.looks, refusedSeldom)
	if p.problem == "" && !p.isStuck {
		wait.After = backoff(podsEndSoon, p.looks, podsEndSeldom)
	}
	return wait
}

// fewPods joins the holds of the first pods, and adds the number of further pods.
func fewPods(holds []string) string {
	text := strings.Join(holds[:min(maxPods, len(holds))], "; ")
	if more := len(holds) - maxPods; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// backoff returns a duration that doubles with each check except for the first, up to a limit.
func backoff(first time.Duration, looks int, limit time.Duration) time.Duration {
	for ; looks > 1 && first < limit; looks-- {
		first *= 2
	}
	return min(first, limit)
}
