package deploymenthook_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

// A podEnd is how a pod of a hook ends.
type podEnd struct {
	exitCode     int32
	after        time.Duration // its start, which is a second after its creation
	neverStarts  bool
	neverEnds    bool
	isEvicted    bool
	isNodeLost   bool          // so that no kubelet ends it: neither at its deadline, nor when it is deleted
	staysDeleted bool          // it does not end when it is deleted
	phaseLag     time.Duration // after the end of its container until the kubelet reports that of the pod
}

// A hookPod is a pod of a hook with its end.
type hookPod struct {
	*corev1.Pod
	end     podEnd
	ended   time.Time // its container; zero before
	removed time.Time // when a deleted pod is removed
}

// A cluster contains the values that hooks are about, and a clock that jumps from one event to the next. It has no API:
// a process reads and changes its values.
type cluster struct {
	t         testing.TB
	now       time.Time
	live      *appsv1.Deployment
	own       []ownPod
	pods      []*hookPod
	record    *deploymenthook.State
	ends      []podEnd // ends of the pods that are created next
	lastEnd   podEnd   // end of the pods after those
	refusal   string   // refusal for created pods
	isFinal   bool     // whether it refuses them for good
	oldStay   bool     // old pods never go
	noSet     bool     // the Deployment controller makes no ReplicaSet
	created   int
	succeeded map[string]int // pods of the present rollout that have succeeded, by stage
}

// An ownPod is a pod of the Deployment itself.
type ownPod struct {
	name, template string
	removed        time.Time // zero while the pod runs
}

func newCluster(t testing.TB) *cluster {
	return &cluster{
		t:         t,
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		lastEnd:   podEnd{after: 10 * time.Second},
		succeeded: map[string]int{},
	}
}

// step runs the controllers and kubelets.
func (c *cluster) step() {
	c.own = slices.DeleteFunc(c.own, func(p ownPod) bool { return !p.removed.IsZero() && !c.now.Before(p.removed) })
	c.deploy()
	for _, pod := range c.pods {
		c.run(pod)
	}
	c.pods = slices.DeleteFunc(c.pods, func(p *hookPod) bool { return !p.removed.IsZero() && !c.now.Before(p.removed) })
}

// deploy is the deployment controller: Recreate, for simplicity.
func (c *cluster) deploy() {
	template, wanted := "", 0
	if c.live != nil {
		template, wanted = deploymenthook.HashTemplate(c.live), int(*c.live.Spec.Replicas)
	}
	running := 0
	for i := range c.own {
		pod := &c.own[i]
		isOld := pod.template != template && (c.live == nil || !c.live.Spec.Paused)
		if pod.removed.IsZero() && (isOld || running >= wanted) {
			pod.removed = c.now.Add(2 * time.Second)
			if c.oldStay {
				pod.removed = c.now.Add(1000 * time.Hour)
			}
		}
		if pod.removed.IsZero() {
			running++
		}
	}
	isFree := !slices.ContainsFunc(c.own, func(p ownPod) bool { return p.template != template })
	for ; c.live != nil && !c.live.Spec.Paused && isFree && running < wanted; running++ {
		c.created++
		c.own = append(c.own, ownPod{name: fmt.Sprintf("web-%d", c.created), template: template})
	}
}

// run is the kubelet.
func (c *cluster) run(pod *hookPod) {
	start := pod.CreationTimestamp.Add(time.Second)
	switch {
	case pod.end.neverStarts || c.now.Before(start) || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed:
		return
	case !pod.ended.IsZero():
		c.reportPhase(pod)
		return
	}
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: start}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  pod.Spec.Containers[0].Name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	deadline := start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second)
	ends := start.Add(pod.end.after)
	switch {
	case pod.end.isNodeLost || pod.DeletionTimestamp != nil:
	case !pod.end.neverEnds && !c.now.Before(ends):
		c.end(pod)
	case !c.now.Before(deadline):
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "DeadlineExceeded",
			"Pod was active on the node longer than the specified deadline"
	}
}

// end terminates the container of a pod according to its podEnd. An eviction sets the phase of the pod at once;
// otherwise, reportPhase sets it later.
func (c *cluster) end(pod *hookPod) {
	pod.ended = c.now
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: pod.end.exitCode},
	}
	switch {
	case pod.end.isEvicted:
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted",
			"The node was low on resource: memory."
	case pod.end.exitCode == 0:
		c.succeeded[pod.Labels["runlevel.dev/hook"]]++
	}
	c.reportPhase(pod)
}

// reportPhase reports the end of a pod whose container has ended.
func (c *cluster) reportPhase(pod *hookPod) {
	if pod.end.isEvicted || c.now.Before(pod.ended.Add(pod.end.phaseLag)) {
		return
	}
	pod.Status.Phase = corev1.PodSucceeded
	if pod.end.exitCode != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
}

func hasEnded(pod *hookPod) bool {
	return !pod.ended.IsZero() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// next returns when something happens next, at the latest.
func (c *cluster) next(latest time.Time) time.Time {
	var times []time.Time
	for _, pod := range c.pods {
		start := pod.CreationTimestamp.Add(time.Second)
		times = append(times, start, start.Add(pod.end.after),
			start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds)*time.Second), pod.removed)
		if !pod.ended.IsZero() {
			times = append(times, pod.ended.Add(pod.end.phaseLag))
		}
	}
	for _, pod := range c.own {
		times = append(times, pod.removed)
	}
	for _, item := range times {
		if item.After(c.now) && (latest.IsZero() || item.Before(latest)) {
			latest = item
		}
	}
	if latest.IsZero() {
		return c.now.Add(time.Second)
	}
	return latest
}

// jump lets time pass.
func (c *cluster) jump(timestamp time.Time) {
	c.now = timestamp
	c.step()
}

// create creates a pod of a hook, unless the cluster refuses it.
func (c *cluster) create(pod *corev1.Pod) error {
	if c.refusal != "" {
		return errors.New(c.refusal)
	}
	for _, other := range c.pods {
		if other.Name == pod.Name {
			c.t.Fatalf("pod %s is there already", pod.Name)
		}
		if !hasEnded(other) {
			c.t.Fatalf("pod %s is created while %s runs", pod.Name, other.Name)
		}
	}
	if stage := deploymenthook.Stage(pod.Labels["runlevel.dev/hook"]); stage == deploymenthook.Mid && len(c.own) > 0 {
		c.t.Fatalf("pod %s is created while %d pods of the Deployment are there", pod.Name, len(c.own))
	}
	pod = pod.DeepCopy()
	pod.UID, pod.CreationTimestamp.Time, pod.Status.Phase = types.UID(pod.Name+c.now.String()), c.now, corev1.PodPending
	end := c.lastEnd
	if len(c.ends) > 0 {
		end, c.ends = c.ends[0], c.ends[1:]
	}
	c.pods = append(c.pods, &hookPod{Pod: pod, end: end})
	c.step()
	return nil
}

// delete deletes the pod of a hook.
func (c *cluster) delete(name string) {
	for _, pod := range c.pods {
		if pod.Name != name || pod.DeletionTimestamp != nil {
			continue
		}
		pod.DeletionTimestamp = &metav1.Time{Time: c.now.Add(30 * time.Second)}
		switch {
		case hasEnded(pod):
			pod.removed = c.now
		case pod.end.staysDeleted || pod.end.isNodeLost:
			pod.removed = c.now.Add(1000 * time.Hour)
		default:
			pod.removed = c.now.Add(2 * time.Second)
		}
	}
	c.step()
}

// deleteDeployment deletes the Deployment and the objects that it owns.
func (c *cluster) deleteDeployment() {
	c.live = nil
	for _, pod := range slices.Clone(c.pods) {
		c.delete(pod.Name)
	}
}

// state returns the state of the hooks. The annotation takes precedence over the record.
func (c *cluster) state() deploymenthook.State {
	if c.live != nil {
		if state, exists := deploymenthook.ReadState(c.live); exists {
			c.record = &state
		}
	}
	if c.record == nil {
		return deploymenthook.State{}
	}
	return *c.record
}

// write writes the state of an action, and the replicas.
func (c *cluster) write(action deploymenthook.HookAction) {
	if action.State == nil {
		return
	}
	if before := c.state(); before.Rollout != action.State.Rollout {
		clear(c.succeeded)
	}
	for stage, progress := range action.State.Hooks {
		if action.IsOverruling && progress.Result == "" {
			c.succeeded[string(stage)] = 0 // it runs again
		}
	}
	if c.live != nil {
		c.live.Annotations = map[string]string{deploymenthook.StateAnnotation: action.State.Text()}
		if action.Replicas != nil {
			replicas := *action.Replicas
			c.live.Spec.Replicas = &replicas
		}
	}
	state := *action.State
	c.record = &state
	if state.IsEmpty() {
		c.record = nil
		if c.live != nil {
			c.live.Annotations = nil
		}
	}
	c.step()
}

// put creates the Deployment of a release, or updates it.
func (c *cluster) put(desired *appsv1.Deployment, paused bool) {
	next := desired.DeepCopy()
	next.Spec.Paused = paused
	item := int32(1)
	if c.live != nil {
		next.Annotations, item = c.live.Annotations, *c.live.Spec.Replicas
	}
	next.Spec.Replicas = cmp.Or(next.Spec.Replicas, &item)
	c.live = next
	c.step()
}

// isRolledOut reports whether the Deployment has all desired pods, and no others.
func (c *cluster) isRolledOut() bool {
	template := deploymenthook.HashTemplate(c.live)
	isOther := func(p ownPod) bool { return p.template != template || !p.removed.IsZero() }
	return !slices.ContainsFunc(c.own, isOther) && len(c.own) == int(*c.live.Spec.Replicas)
}
