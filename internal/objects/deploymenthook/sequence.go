package deploymenthook

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Reasons of failures.
const (
	HookFailed   = "LifecycleHookFailed"   // the pod has failed
	HookTimedOut = "LifecycleHookTimedOut" // the pod has not ended in time
	HookRefused  = "LifecycleHookRefused"  // the pod could not be created
	HookNotEnded = "LifecycleHookNotEnded" // the pod was deleted, and still exists
	PodsNotGone  = "OldPodsNotGone"        // before a mid hook
	NoReplicaSet = "NewReplicaSetMissing"  // before a post hook
)

// A sequence is one stage of a rollout.
type sequence struct {
	Rollout
	stage Stage
	hook  *Hook
	facts RolloutFacts
}

func (s sequence) hash() string { return s.Rollout.hash(s.stage) }

// progress returns the progress of the hook. A changed hook starts over, unless it has a result: a corrected
// timeout does not migrate a database again.
func (s sequence) progress() HookProgress {
	progress := s.facts.State.Hooks[s.stage]
	if progress.Hash != s.hash() && progress.Result == "" {
		return HookProgress{Hash: s.hash()}
	}
	return progress
}

// next returns the next action.
func (s sequence) next() HookAction {
	p := s.progress()
	switch {
	case s.hook == nil:
		return HookAction{Do: Proceed}
	case p.Result != "" && s.stage == Post:
		return HookAction{Do: Save, State: s.completedState(s.facts.State)}
	case p.Result != "":
		return HookAction{Do: Proceed, Message: string(p.Result)}
	case s.stage == Mid && s.facts.State.IsInstall:
		return s.save(HookProgress{Hash: p.Hash, Result: NotNeeded})
	case s.isPaused():
		stopped := s.facts.State.Stopped
		return HookAction{
			Do:     GiveUp,
			Reason: stopped.Reason,
			Message: fmt.Sprintf("%s; it begins again after %s", stopped.Message,
				stopped.Time.Add(s.Pause).UTC().Format(time.RFC3339)),
		}
	case s.stage != Post && s.facts.Live == nil:
		return HookAction{Do: MakePaused}
	case p.Began == nil:
		return s.start(p)
	case s.facts.Live == nil: // deleted; may be created again
		return s.await(p, NoReplicaSet, "the Deployment does not exist")
	case s.stage == Mid && count(s.facts.Live) > 0:
		return s.scaleDown(p)
	}
	if pod := s.currentPod(); pod != nil {
		return s.checkPod(p, pod)
	}
	return s.attempt(p)
}

// isPaused reports whether the hook has stopped the rollout, and Pause is not over. A changed hook begins at once.
func (s sequence) isPaused() bool {
	stopped := s.facts.State.Stopped
	return stopped != nil && stopped.Stage == s.stage && stopped.Hash == s.hash() &&
		s.facts.Now.Before(stopped.Time.Add(s.Pause))
}

// save returns the action that saves the progress of the hook.
func (s sequence) save(p HookProgress) HookAction {
	return HookAction{Do: Save, State: s.facts.State.withProgress(s.stage, p)}
}

// start saves the beginning of the hook. Existing pods are from an earlier rollout of the template or an earlier try,
// and do not count.
func (s sequence) start(p HookProgress) HookAction {
	p.Began = &metav1.Time{Time: s.facts.Now}
	for _, pod := range s.facts.Pods {
		if Stage(pod.Labels[stageLabel]) == s.stage && s.isOurs(pod) {
			p.Attempt = max(p.Attempt, attemptOf(pod))
		}
	}
	action := s.save(p)
	action.State.Stopped = nil
	return action
}

// currentPod returns the pod of the current attempt; nil if there is none.
func (s sequence) currentPod() *corev1.Pod {
	for _, pod := range s.facts.Pods {
		if Stage(pod.Labels[stageLabel]) == s.stage && s.isCurrent(pod, s.facts.State) {
			return pod
		}
	}
	return nil
}

// scaleDown scales the Deployment to 0, and saves its replicas. If another client scales it up again and again, the
// rollout is given up.
func (s sequence) scaleDown(p HookProgress) HookAction {
	if !s.facts.Now.Before(p.Began.Add(s.deadline())) {
		return s.giveUp(p, PodsNotGone,
			fmt.Sprintf("after %s, another client still scales the Deployment up", s.deadline()))
	}
	state, none := s.facts.State, int32(0)
	replicas := count(s.facts.Live)
	state.Replicas = &replicas
	return HookAction{
		Do:       Scale,
		Replicas: &none,
		State:    &state,
		Message:  "its mid hook runs while none of its pods does",
	}
}

// attempt begins the next attempt, if the failure policy allows it. An attempt without its pod has failed.
func (s sequence) attempt(p HookProgress) HookAction {
	if p.Pod != "" {
		return s.reportFailure(p, nil, HookFailed,
			fmt.Sprintf("pod %s no longer exists, and its result was not observed", s.pod(p.Attempt+1).Name))
	}
	if p.Failed != nil {
		if action, isDecided := s.afterFailure(p); isDecided {
			return action
		}
	}
	switch {
	case len(s.facts.OldPods) > 0:
		return s.await(p, PodsNotGone, "pods of the old template are still there: "+printable.Few(s.facts.OldPods, 3))
	case s.stage == Post && s.facts.ReplicaSet == nil:
		return s.await(p, NoReplicaSet, "the Deployment has no ReplicaSet of the new template yet")
	}
	pod := s.pod(p.Attempt + 1)
	if refused := s.facts.Refused; refused != nil && refused.Pod == pod.Name &&
		(refused.IsFinal || s.facts.Now.Sub(refused.Since) >= s.hook.Timeout()) {
		return s.reportFailure(p, nil, HookRefused, "its pod can't be created: "+refused.Cause)
	}
	return HookAction{Do: Create, Pod: pod}
}

// await waits for a precondition of the hook's pod. After the progress deadline, the rollout is given up.
func (s sequence) await(p HookProgress, reason, words string) HookAction {
	until := p.Began.Add(s.deadline())
	if s.facts.Now.Before(until) {
		return HookAction{Do: Wait, Message: words, Until: until}
	}
	return s.giveUp(p, reason, fmt.Sprintf("after %s, %s", s.deadline(), words))
}

// afterFailure returns the reaction to the last failure; undecided if another attempt is due.
func (s sequence) afterFailure(p HookProgress) (action HookAction, isDecided bool) {
	switch policy, limit := s.hook.Policy(), s.hook.BackoffLimit; {
	case policy == Ignore:
		p.Result = Ignored
		return s.save(p), true
	case policy == Abort:
		return s.giveUp(p, HookFailed, "its failure policy is Abort"), true
	case limit != nil && p.Failures > int(*limit):
		return s.giveUp(p, HookFailed,
			fmt.Sprintf("it has failed %s, and its backoffLimit is %d", times(p.Failures), *limit)), true
	case !s.facts.Now.Before(p.Began.Add(s.deadline())):
		return s.giveUp(p, HookFailed,
				fmt.Sprintf("it has failed %s, and the progress deadline of %s is over", times(p.Failures),
					s.deadline())),
			true
	}
	next := p.Failed.Add(pause(p.Failures))
	if s.facts.Now.Before(next) {
		return HookAction{
			Do:      Wait,
			Until:   next,
			Message: fmt.Sprintf("attempt %d has failed, the next one follows", p.Attempt),
		}, true
	}
	return HookAction{}, false
}

// times returns a number of times in words.
func times(count int) string {
	if count == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", count)
}

// longestPause limits the time between two attempts.
const longestPause = time.Minute

// pause returns the time until the next attempt, after a number of failures.
func pause(failures int) time.Duration {
	return min(longestPause, time.Second<<min(failures-1, 10))
}

// giveUp ends the rollout, and adds the last failure to the message.
func (s sequence) giveUp(p HookProgress, reason, message string) HookAction {
	if p.Message != "" {
		message = p.Message + "; " + message
	}
	action := s.Rollout.giveUp(s.facts, reason, message)
	action.State.Stopped = &StoppedRollout{
		Stage: s.stage, Hash: s.hash(), Time: metav1.NewTime(s.facts.Now), Reason: reason,
		Message: printable.Truncate(message, maxMessage),
	}
	return action
}

// checkPod checks the pod of the current attempt. A deleted pod has failed, as for a Job: its end may never be
// observed.
func (s sequence) checkPod(p HookProgress, pod *corev1.Pod) HookAction {
	until := s.timeoutOf(pod)
	switch {
	case hasSucceeded(pod):
		p.Result, p.Attempt, p.Pod = Succeeded, attemptOf(pod), ""
		action := s.save(p)
		action.Pod = pod
		return action
	case pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == deadlineExceeded:
		return s.reportTimeout(p, pod, s.facts.LastState)
	case hasFailed(pod):
		return s.reportFailure(p, pod, HookFailed, failureOf(pod))
	case pod.DeletionTimestamp != nil:
		return s.reportFailure(p, pod, HookFailed, deletionOf(pod))
	case !s.facts.Now.Before(until):
		return s.reportTimeout(p, pod, StateOf(pod))
	case p.Pod != pod.UID:
		p.Pod = pod.UID
		return s.save(p)
	}
	return HookAction{Do: Wait, Pod: pod, Until: until, Message: "pod " + pod.Name + " " + StateOf(pod)}
}

// timeoutOf returns the time at which a pod times out. The timeout applies to the start of the pod, and then again to
// its end. The kubelet gets a few more seconds to end a started pod, because it keeps the log.
func (s sequence) timeoutOf(pod *corev1.Pod) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Add(s.hook.Timeout() + 5*time.Second)
	}
	return pod.CreationTimestamp.Add(s.hook.Timeout())
}

// reportTimeout reports a pod that has timed out, with its last state, for example that the image could not be pulled.
// When the kubelet has ended a pod, its status no longer has that state.
func (s sequence) reportTimeout(p HookProgress, pod *corev1.Pod, state string) HookAction {
	words := fmt.Sprintf("pod %s has not ended within %s", pod.Name, s.hook.Timeout())
	if state != "" {
		words += ": it " + state
	}
	return s.reportFailure(p, pod, HookTimedOut, words)
}

// reportFailure reports a failed attempt.
func (s sequence) reportFailure(p HookProgress, pod *corev1.Pod, reason, message string) HookAction {
	p.Attempt++
	if pod != nil {
		p.Attempt = attemptOf(pod)
	}
	p.Failures++
	p.Pod = ""
	p.Failed, p.Message = &metav1.Time{Time: s.facts.Now}, message
	return HookAction{
		Do:      Report,
		Pod:     pod,
		Reason:  reason,
		Message: message,
		Attempt: p.Attempt,
		State:   s.facts.State.withProgress(s.stage, p),
	}
}

// attemptOf returns the number of a pod's attempt.
func attemptOf(pod *corev1.Pod) int {
	attempt, _ := strconv.Atoi(pod.Labels[attemptLabel])
	return attempt
}
