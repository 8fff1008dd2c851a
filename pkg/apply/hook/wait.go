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

// A podWait is the wait of a hook: it is over at a time, or when a pod of the hook has changed.
type podWait struct {
	Until   time.Time       // by the server's clock
	Changed <-chan struct{} // receives when a pod differs from what was seen
	Stop    func()          // ends the watch; is called once, however the wait ends
}

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
	wait.Until = func(wake func()) (cancel func()) {
		pods := r.observer.await(ctx, until, seen.Pods)
		return pods.callback(pods.Until.Sub(r.Cluster.Now()), wake)
	}
	if action.Pod != nil {
		r.lastState = deploymenthook.StateOf(action.Pod)
	}
	r.logs.follow(ctx, stage, action.Pod)
	return wait
}

// callback calls a function when the wait is over. It may be called twice.
func (w podWait) callback(after time.Duration, wake func()) (cancel func()) {
	timer, stopped := time.AfterFunc(after, wake), make(chan struct{})
	go func() {
		select {
		case <-w.Changed:
			wake()
		case <-stopped:
		}
	}()
	return func() { timer.Stop(); close(stopped); w.Stop() }
}

// await watches the pods of hooks until one differs from those that were seen.
func (o observer) await(ctx context.Context, until time.Time, seen []*corev1.Pod) podWait {
	ctx, stop := context.WithCancel(ctx)
	changes := podChanges{seen: map[string]string{}, changed: make(chan struct{}, 1)}
	for _, pod := range seen {
		changes.seen[pod.Name] = pod.ResourceVersion
	}
	pods := o.client.CoreV1().Pods(o.id.Namespace)
	go resourcewatch.Run(ctx, resourcewatch.ListerWatcher[*corev1.PodList]{
		List:   pods.List,
		Watch:  pods.Watch,
		Client: o.client, Labels: o.hookPods(),
	}, changes, longestPause, func(error) {}) // the hook looks again without the watch as well
	return podWait{until, changes.changed, stop}
}

// podChanges reports pods that differ from the versions that were seen.
type podChanges struct {
	seen    map[string]string
	changed chan struct{}
}

// OnChange is called with a pod that has changed, or is gone.
func (c podChanges) OnChange(pod *corev1.Pod, exists bool) {
	if !exists || c.seen[pod.Name] != pod.ResourceVersion {
		c.report()
	}
}

// OnList is called with all pods.
func (c podChanges) OnList(pods []*corev1.Pod, _ string) {
	if len(pods) != len(c.seen) {
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
