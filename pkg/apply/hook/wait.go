package hook

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// The longest pauses before a hook gathers its facts again: its watch wakes it at once, but covers only the pods of
// hooks, and may be forbidden.
const (
	lookEvery    = 10 * time.Second
	lookOften    = 500 * time.Millisecond // interval while waiting for old pods or a new ReplicaSet
	longestPause = 30 * time.Second       // between tries of a refused watch
)

// waitFor returns the wait of an action.
func (r *runner) waitFor(ctx context.Context, stage deploymenthook.Stage, facts deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) *object.StepWait {
	until := facts.Now.Add(lookEvery)
	if len(facts.OldPods) > 0 || stage == deploymenthook.Post && facts.ReplicaSet == nil {
		until = facts.Now.Add(lookOften)
	}
	if !action.Until.IsZero() && action.Until.Before(until) {
		until = action.Until
	}
	wait := &object.StepWait{For: action.Message, Since: facts.Now}
	if began := facts.State.Hooks[stage].Began; began != nil {
		wait.Since = began.Time
	}
	wait.Pause = until.Sub(r.Cluster.Now())
	wait.Changed, wait.Stop = r.observer.await(ctx, facts.Pods)
	if action.Pod != nil {
		r.lastState = deploymenthook.StateOf(action.Pod)
	}
	r.logs.follow(ctx, stage, action.Pod)
	return wait
}

// await watches the pods of hooks until stop is called, and signals each pod that differs from its known version.
func (o observer) await(ctx context.Context, known []*corev1.Pod) (changed <-chan struct{}, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	changes := podChanges{versions: map[string]string{}, changed: make(chan struct{}, 1)}
	for _, pod := range known {
		changes.versions[pod.Name] = pod.ResourceVersion
	}
	pods := o.client.CoreV1().Pods(o.id.Namespace)
	go resourcewatch.Run(ctx, resourcewatch.ListerWatcher[*corev1.PodList]{
		List:   pods.List,
		Watch:  pods.Watch,
		Client: o.client, Labels: o.hookPods(),
	}, changes, longestPause, func(error) {}) // the hook looks again without the watch as well
	return changes.changed, stop
}

// podChanges reports pods that differ from their known versions.
type podChanges struct {
	versions map[string]string
	changed  chan struct{}
}

// OnChange is called with a pod that has changed, or was deleted.
func (c podChanges) OnChange(pod *corev1.Pod, exists bool) {
	if !exists || c.versions[pod.Name] != pod.ResourceVersion {
		c.report()
	}
}

// OnList is called with all pods.
func (c podChanges) OnList(pods []*corev1.Pod, _ string) {
	if len(pods) != len(c.versions) {
		c.report()
	}
	for _, pod := range pods {
		c.OnChange(pod, true)
	}
}

func (c podChanges) report() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
