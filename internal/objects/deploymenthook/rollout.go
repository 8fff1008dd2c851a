package deploymenthook

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Rollout is a Deployment as a release wants it, with its hooks.
type Rollout struct {
	Release  string
	Hooks    *Hooks             // nil if the release no longer has hooks for the Deployment
	Desired  *appsv1.Deployment // the Deployment of the release
	Template string             // HashTemplate of Desired

	// IsCreateOnly is true if the Deployment is only created, and never changed.
	IsCreateOnly bool

	Override Override
	// Pause is the pause before a rollout that a hook has stopped is tried again; none if it is 0. It keeps a
	// controller that applies a release again and again from running the hook each time.
	Pause time.Duration
}

// An Override is a user's request to skip or rerun hooks in this apply.
type Override struct {
	Skip  []Stage // hooks that count as run
	Rerun []Stage // hooks that run, though the template is not new
	By    string  // the user
}

// IsEmpty reports whether the user has not requested anything.
func (o Override) IsEmpty() bool { return len(o.Skip)+len(o.Rerun) == 0 }

// RolloutFacts is the observed state of a Deployment and of its hooks.
type RolloutFacts struct {
	Now         time.Time // time of the server's clock
	State       State
	IsOverruled bool               // the Override is in the State
	Live        *appsv1.Deployment // nil if it does not exist
	IsChanged   *bool              // whether an apply changes the live pod template; nil if unknown
	Pods        []*corev1.Pod      // pods of the hooks
	OldPods     []string           // names of its own pods, in the mid stage
	ReplicaSet  *appsv1.ReplicaSet // set of the live template, in the post stage; nil if there is none yet
	LastState   string             // the last StateOf the running pod; "" if unknown
	Refused     *Refusal           // response to creating the next pod of the hook, if it was refused
}

// A Refusal contains the reason why a pod could not be created.
type Refusal struct {
	Pod     string
	Since   time.Time // the time of the first refusal
	Cause   string
	IsFinal bool // a retry does not help
}

// A HookAction is the next action for a hook.
type HookAction struct {
	Do      ActionType
	State   *State // the state to save with the action; nil if unchanged
	Message string // the reason of a wait or of another action

	Pod      *corev1.Pod // the pod to create, delete or wait for, or an ended pod
	Replicas *int32      // replicas to scale the Deployment to
	Until    time.Time   // when to call Next again at the latest; zero if only after a change
	Reason   string      // reason of a failure
	Attempt  int         // the failed attempt

	IsOverruling bool // the State includes the Override
}

// WithLastLine returns an action that reports a failure, with the last line of the pod's log.
func (a HookAction) WithLastLine(stage Stage, log []string) HookAction {
	if len(log) > 0 {
		a.Message += ": " + log[len(log)-1]
	}
	p := a.State.Hooks[stage]
	p.Message = printable.Truncate(a.Message, maxMessage)
	a.State = a.State.withProgress(stage, p)
	return a
}

// maxMessage is the maximum length of a saved message, in bytes.
const maxMessage = 500

// An ActionType is the type of a HookAction.
type ActionType string

// The types of actions.
const (
	Proceed    ActionType = "proceed"     // the next step of the Deployment follows
	Compare    ActionType = "compare"     // find out whether an apply changes the live pod template
	Save       ActionType = "save"        // the State
	MakePaused ActionType = "make paused" // the Deployment, so that the pod of a hook has an owner
	Scale      ActionType = "scale"       // the Deployment
	Create     ActionType = "create"      // the Pod
	Delete     ActionType = "delete"      // the Pod
	Report     ActionType = "report"      // the failure of an attempt
	Wait       ActionType = "wait"
	GiveUp     ActionType = "give up" // the rollout stops; a Deployment that was scaled to 0 is scaled back
)

// Next returns the next action of a stage.
func (r Rollout) Next(stage Stage, facts RolloutFacts) HookAction {
	if action, isDecided := r.begin(facts); isDecided {
		return action
	}
	return r.sequence(stage, facts).next()
}

// NextApply returns the next action before the Deployment itself is applied.
func (r Rollout) NextApply(facts RolloutFacts) HookAction {
	if action, isDecided := r.begin(facts); isDecided {
		return action
	}
	if state := facts.State; state.Template != "" { // the Deployment is about to get another one
		state.Template = ""
		return HookAction{Do: Save, State: &state}
	}
	return HookAction{Do: Proceed}
}

// AfterApply returns the next action after the Deployment was applied.
func (r Rollout) AfterApply(facts RolloutFacts) HookAction {
	state := facts.State
	switch {
	case state.Rollout != r.Template || facts.Live == nil:
		return HookAction{Do: Proceed}
	case state.Replicas != nil:
		replicas, next := state.Restore(facts.Live)
		if wanted := r.Desired.Spec.Replicas; wanted != nil && *wanted == 0 {
			replicas = nil
		}
		return scaleBack(replicas, next)
	case r.Hooks.Of(Post) == nil:
		return HookAction{Do: Save, State: r.completedState(state)}
	default:
		return HookAction{Do: Proceed}
	}
}

// completedState returns the state of a complete rollout.
func (r Rollout) completedState(state State) *State {
	if r.Hooks == nil {
		return &State{}
	}
	return &State{Template: r.Template, Hooks: state.Hooks}
}

// begin begins a rollout if it is needed. It decides nothing while the rollout of the template is under way.
func (r Rollout) begin(facts RolloutFacts) (action HookAction, isDecided bool) {
	if action, isDecided := r.cleanUp(facts); isDecided {
		return action, true
	}
	isUnderWay, isComplete := facts.State.Rollout == r.Template, facts.State.IsRolledOut(r.Template)
	hasOverride := !r.Override.IsEmpty() && !facts.IsOverruled
	switch {
	case r.IsCreateOnly && facts.Live != nil && !r.isBeingCreated(facts):
		return r.keepUnchanged(facts), true
	case hasOverride && (isUnderWay || isComplete):
		return HookAction{Do: Save, State: r.withOverride(facts.State), IsOverruling: true}, true
	case isUnderWay:
		return HookAction{}, false
	case isComplete:
		return HookAction{Do: Proceed, Message: "the pod template is not new"}, true
	default:
		return r.startRollout(facts), true
	}
}

// startRollout saves the beginning of the rollout of the template, unless the Deployment already has the template.
func (r Rollout) startRollout(facts RolloutFacts) HookAction {
	state := facts.State
	isInstall := facts.Live == nil || state.IsInstall && facts.Live.Spec.Paused
	switch {
	case state.Template == r.Template: // the rollout of another template is under way
		return r.endRollout(facts)
	case r.Hooks == nil && state.IsEmpty():
		return HookAction{Do: Proceed}
	case isInstall:
	case facts.IsChanged == nil:
		return HookAction{Do: Compare}
	case !*facts.IsChanged:
		return r.endRollout(facts)
	}
	started := &State{Template: state.Template, Rollout: r.Template, IsInstall: isInstall, Replicas: state.Replicas}
	return HookAction{Do: Save, State: started}
}

// isBeingCreated reports whether an install is under way: of this template, or of another one whose Deployment has no
// pods yet.
func (r Rollout) isBeingCreated(facts RolloutFacts) bool {
	state := facts.State
	return state.Rollout != "" && state.IsInstall && (state.Rollout == r.Template || facts.Live.Spec.Paused)
}

// keepUnchanged keeps an existing create-only Deployment as it is. A rollout of an earlier release ends.
func (r Rollout) keepUnchanged(facts RolloutFacts) HookAction {
	if facts.State.Rollout == "" {
		return HookAction{Do: Proceed, Message: "the Deployment is create-only, and exists already"}
	}
	replicas, _ := facts.State.Restore(facts.Live)
	return scaleBack(replicas, &State{Template: facts.State.Template})
}

// endRollout ends a rollout, if there is one: the Deployment already has the template of the release.
func (r Rollout) endRollout(facts RolloutFacts) HookAction {
	replicas, _ := facts.State.Restore(facts.Live)
	return scaleBack(replicas, r.completedState(State{}))
}

// scaleBack saves a state, and scales to the replicas before the mid hook, unless they are nil.
func scaleBack(replicas *int32, state *State) HookAction {
	if replicas == nil {
		return HookAction{Do: Save, State: state}
	}
	return HookAction{Do: Scale, Replicas: replicas, State: state, Message: "as many as before its mid hook"}
}

// withOverride returns a state that includes the Override.
func (r Rollout) withOverride(state State) *State {
	next := &state
	if len(r.Override.Rerun) > 0 && state.Rollout == "" {
		next.Rollout = r.Template
		for _, stage := range Stages {
			next = next.withProgress(stage, HookProgress{Hash: r.hash(stage), Result: NotNeeded})
		}
	}
	for _, stage := range r.Override.Rerun {
		next = next.withRestartedHooks().withProgress(stage,
			HookProgress{Hash: r.hash(stage), Attempt: next.Hooks[stage].Attempt, By: r.Override.By})
	}
	for _, stage := range r.Override.Skip {
		next = next.withProgress(stage, HookProgress{
			Hash:    r.hash(stage),
			Attempt: next.Hooks[stage].Attempt,
			Result:  Skipped,
			By:      r.Override.By,
		})
	}
	return next
}

// cleanUp deletes pods that are not needed: of another template, of a hook that was changed or skipped, of an attempt
// that has failed. It awaits their end, so that two hooks of a Deployment never run at a time. It also deletes pods
// that have ended and are not kept.
func (r Rollout) cleanUp(facts RolloutFacts) (action HookAction, isDecided bool) {
	for _, pod := range facts.Pods {
		switch {
		case r.isCurrent(pod, facts.State):
		case HasEnded(pod) && (pod.DeletionTimestamp != nil || r.isKept(pod, facts.State)):
		case HasEnded(pod):
			return HookAction{Do: Delete, Pod: pod, Message: "it has ended, and is not kept"}, true
		case pod.DeletionTimestamp == nil:
			return HookAction{Do: Delete, Pod: pod, Message: "nothing waits for it any more"}, true
		default:
			return r.awaitEnd(pod, facts), true
		}
	}
	return HookAction{}, false
}

// awaitEnd waits until a deleted pod has ended. After the progress deadline, the rollout is given up.
func (r Rollout) awaitEnd(pod *corev1.Pod, facts RolloutFacts) HookAction {
	until := pod.DeletionTimestamp.Add(r.deadline())
	words := fmt.Sprintf("pod %s of a hook was deleted, and has not ended", pod.Name)
	if facts.Now.Before(until) {
		return HookAction{Do: Wait, Pod: pod, Message: words + " yet", Until: until}
	}
	if last := facts.State.Hooks[Stage(pod.Labels[stageLabel])].Message; last != "" && r.isOurs(pod) {
		return r.giveUp(facts, HookNotEnded,
			fmt.Sprintf("%s; it was deleted, and is still there after %s", last, r.deadline()))
	}
	return r.giveUp(facts, HookNotEnded, fmt.Sprintf("%s within %s", words, r.deadline()))
}

// giveUp ends the rollout: a Deployment that was scaled to 0 is scaled back, and the next apply starts with the first
// hook without a result.
func (r Rollout) giveUp(facts RolloutFacts, reason, message string) HookAction {
	replicas, state := facts.State.Restore(facts.Live)
	return HookAction{
		Do:       GiveUp,
		Reason:   reason,
		Message:  message,
		Replicas: replicas,
		State:    state.withRestartedHooks(),
	}
}

// isCurrent reports whether a pod belongs to the current attempt. No pod does while an earlier hook has no result,
// because that hook runs again or is new in the release, or after an update has made the Deployment create-only.
func (r Rollout) isCurrent(pod *corev1.Pod, state State) bool {
	stage := Stage(pod.Labels[stageLabel])
	for _, earlier := range Stages[:max(0, slices.Index(Stages, stage))] {
		if r.Hooks.Of(earlier) != nil && state.Hooks[earlier].Result == "" {
			return false
		}
	}
	if r.IsCreateOnly && !state.IsInstall {
		return false
	}
	p := state.Hooks[stage]
	return state.Rollout == r.Template && r.isOurs(pod) && p.Hash == r.hash(stage) && p.Began != nil &&
		p.Result == "" && attemptOf(pod) > p.Attempt
}

// isOurs reports whether a pod runs the release's version of a hook and of the template.
func (r Rollout) isOurs(pod *corev1.Pod) bool {
	stage := Stage(pod.Labels[stageLabel])
	return r.Hooks.Of(stage) != nil && pod.Labels[hashLabel] == r.hash(stage)
}

// isKept reports whether a pod that has ended is kept. A failed pod is kept until the rollout of another template
// begins.
func (r Rollout) isKept(pod *corev1.Pod, state State) bool {
	keeps := KeepFailed
	if hook := r.Hooks.Of(Stage(pod.Labels[stageLabel])); hook != nil {
		keeps = hook.Keeps()
	}
	isPast := state.Rollout == r.Template && !r.isOurs(pod)
	return keeps == KeepAlways || keeps == KeepFailed && hasFailed(pod) && !isPast
}

// hash returns the hash of a stage's hook and the template.
func (r Rollout) hash(stage Stage) string {
	return hash(r.Release, r.Desired.Namespace, r.Desired.Name, r.Template, r.Hooks.Of(stage))
}

// deadline returns the progress deadline of a rollout.
func (r Rollout) deadline() time.Duration {
	const kubernetesDefault = 600
	return time.Duration(ptr.Deref(r.Desired.Spec.ProgressDeadlineSeconds, kubernetesDefault)) * time.Second
}

// count returns the desired replicas of a Deployment.
func count(deployment *appsv1.Deployment) int32 { return ptr.Deref(deployment.Spec.Replicas, 1) }

// Due returns the hooks that an apply would run, in their order. Facts must have IsChanged set.
func (r Rollout) Due(facts RolloutFacts) []Stage {
	facts.Pods = nil // otherwise pods of other releases would be ended first
	for action, isDecided := r.begin(facts); isDecided; action, isDecided = r.begin(facts) {
		if action.State == nil {
			return nil
		}
		facts.State, facts.IsOverruled = *action.State, facts.IsOverruled || action.IsOverruling
	}
	var due []Stage
	for _, stage := range Stages {
		s := r.sequence(stage, facts)
		isNeeded := s.hook != nil && s.progress().Result == "" && (stage != Mid || !facts.State.IsInstall)
		if isNeeded {
			due = append(due, stage)
		}
	}
	return due
}

// NextPod returns the pod of a hook's next attempt.
func (r Rollout) NextPod(stage Stage, facts RolloutFacts) *corev1.Pod {
	s := r.sequence(stage, facts)
	return s.pod(s.progress().Attempt + 1)
}

// sequence returns the sequence of a stage.
func (r Rollout) sequence(stage Stage, facts RolloutFacts) sequence {
	return sequence{Rollout: r, stage: stage, hook: r.Hooks.Of(stage), facts: facts}
}
