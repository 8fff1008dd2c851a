package hook

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// How long a hook waits at most before it looks again: its watch wakes it at once, but covers only the pods of hooks, and
// may be forbidden.
const (
	lookEvery    = 10 * time.Second
	lookOften    = 500 * time.Millisecond // for old pods, and for a new ReplicaSet
	longestPause = 30 * time.Second       // between tries of a watch that is refused
)

// waitFor returns the wait of an action.
func (r *runner) waitFor(ctx context.Context, stage deploymenthook.Stage, seen deploymenthook.RolloutFacts, action deploymenthook.HookAction) *object.StepWait {
	until := seen.Now.Add(lookEvery)
	if len(seen.OldPods) > 0 || stage == deploymenthook.Post && seen.ReplicaSet == nil {
		until = seen.Now.Add(lookOften)
	}
	if !action.Until.IsZero() && action.Until.Before(until) {
		until = action.Until
	}
	wait := &object.StepWait{For: action.Message, Since: seen.Now}
	if began := seen.State.Hooks[stage].Began; began != nil {
		wait.Since = began.Time
	}
	versions := map[string]string{}
	for _, pod := range seen.Pods {
		versions[pod.Name] = pod.ResourceVersion
	}
	watched, stop := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	go r.watch(watched, &waker{versions, changed})
	wait.Pause, wait.Changed, wait.Stop = until.Sub(r.Cluster.Now()), changed, stop
	if action.Pod != nil {
		r.lastState = deploymenthook.StateOf(action.Pod)
	}
	r.logs.follow(ctx, stage, action.Pod)
	return wait
}

// watch watches the pods of hooks.
func (r *runner) watch(ctx context.Context, to *waker) {
	pods := r.Cluster.Client.CoreV1().Pods(r.id.Namespace)
	resourcewatch.Run(ctx, resourcewatch.ListerWatcher[*corev1.PodList]{
		List:   pods.List,
		Watch:  pods.Watch,
		Client: r.Cluster.Client, Labels: r.hookPods(),
	}, to, longestPause, func(error) {}) // the hook looks again without the watch as well
}

// A waker signals pods that differ from the versions that were seen.
type waker struct {
	seen    map[string]string
	changed chan struct{}
}

func (w *waker) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // it was signalled already
	}
}

// OnChange is called with a pod that has changed, or is gone.
func (w *waker) OnChange(pod *corev1.Pod, exists bool) {
	if !exists || w.seen[pod.Name] != pod.ResourceVersion {
		w.wake()
	}
}

// OnList is called with all pods.
func (w *waker) OnList(pods []*corev1.Pod, _ string) {
	if len(pods) != len(w.seen) {
		w.wake()
	}
	for _, pod := range pods {
		w.OnChange(pod, true)
	}
}
