package hook

import (
	"context"
	"sync"
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
	wait.Until = func(wake func()) (cancel func()) { return r.wakeBy(ctx, until, versions, wake) }
	if action.Pod != nil {
		r.lastState = deploymenthook.StateOf(action.Pod)
	}
	r.logs.follow(ctx, stage, action.Pod)
	return wait
}

// wakeBy calls a function once, when a pod of a hook has another version than was seen, or at a time. It is not called
// after cancel.
func (r *runner) wakeBy(ctx context.Context, until time.Time, versions map[string]string, wake func()) (cancel func()) {
	ctx, stop := context.WithCancel(ctx)
	once := sync.OnceFunc(wake)
	timer := time.AfterFunc(until.Sub(r.Cluster.Now()), once)
	go r.watch(ctx, &waker{versions, once})
	return func() {
		stop()
		timer.Stop()
	}
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

// A waker calls wake when pods differ from the versions that were seen.
type waker struct {
	seen map[string]string
	wake func()
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
