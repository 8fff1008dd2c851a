package deploymenthook_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
)

var (
	errKilled  = errors.New("killed")
	errGivenUp = errors.New("given up")
)

// A process applies the Deployment of one release. When it ends, its memory is lost.
type process struct {
	*cluster
	rollout  deploymenthook.Rollout
	onAction func(stage deploymenthook.Stage, action deploymenthook.HookAction)
	onText   func(words string)
	// whether it is killed after an action
	isOver func(stage deploymenthook.Stage, action deploymenthook.HookAction) bool

	isOverruled bool
	isChanged   *bool
	refused     *deploymenthook.Refusal
	actions     int
}

// apply runs the steps of a Deployment with hooks, one after the other.
func (p *process) apply() error {
	p.step()
	for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid} {
		if err := p.stage(stage); err != nil {
			return err
		}
	}
	if err := p.object(); err != nil {
		return err
	}
	return p.stage(deploymenthook.Post)
}

// stage runs a hook, if the release has it.
func (p *process) stage(stage deploymenthook.Stage) error {
	if p.rollout.Hooks.Of(stage) == nil {
		return nil
	}
	return p.until(stage, func(seen deploymenthook.RolloutFacts) deploymenthook.HookAction {
		return p.rollout.Next(stage, seen)
	})
}

// object applies the Deployment itself, and awaits its rollout.
func (p *process) object() error {
	isHooked := p.rollout.Hooks != nil || p.record != nil
	if isHooked {
		if err := p.until("", p.rollout.NextApply); err != nil {
			return err
		}
	}
	p.checkBefore()
	if state := p.state(); p.rollout.IsCreateOnly && p.live != nil && (state.Rollout == "" || !state.IsInstall) {
		p.onText("-    keep")
	} else {
		p.onText("-    apply")
		p.put(p.rollout.Desired, false)
	}
	if p.isOver("", deploymenthook.HookAction{Do: "apply"}) {
		return errKilled
	}
	if isHooked {
		if err := p.until("", p.rollout.AfterApply); err != nil {
			return err
		}
	}
	for p.live != nil && !p.isRolledOut() {
		p.jump(p.next(time.Time{}))
	}
	return nil
}

// checkBefore checks that a new template has no effect before its first hooks have completed.
func (p *process) checkBefore() {
	if p.live != nil && deploymenthook.HashTemplate(p.live) == p.rollout.Template && !p.live.Spec.Paused {
		return
	}
	state := p.state()
	for _, stage := range []deploymenthook.Stage{deploymenthook.Pre, deploymenthook.Mid} {
		if p.rollout.Hooks.Of(stage) != nil && state.Rollout != "" && state.Hooks[stage].Result == "" {
			p.t.Fatalf("template is in effect before its %s hook has completed", stage)
		}
	}
}

// until runs one action after the other, until a stage is complete.
func (p *process) until(stage deploymenthook.Stage,
	next func(deploymenthook.RolloutFacts) deploymenthook.HookAction) error {
	if state := p.state(); state.IsRolledOut(p.rollout.Template) && (p.rollout.Override.IsEmpty() || p.isOverruled) {
		p.onText(fmt.Sprintf("%-4s is not due", cmp.Or(string(stage), "-")))
		return nil
	}
	for {
		seen := p.look(stage)
		action := next(seen)
		p.check(stage, seen, action)
		p.onAction(stage, action)
		if action.Do == deploymenthook.Proceed {
			return nil
		}
		isOver := p.isOver(stage, action)
		if isOver && action.Do == deploymenthook.Wait {
			return errKilled
		}
		p.do(stage, action)
		switch {
		case isOver:
			return errKilled
		case action.Do == deploymenthook.GiveUp:
			return errGivenUp
		}
	}
}

// check looks for actions that are none, and for a sequence that does not end.
func (p *process) check(stage deploymenthook.Stage, seen deploymenthook.RolloutFacts,
	action deploymenthook.HookAction) {
	if p.actions++; p.actions > 1000 {
		p.t.Fatalf("the sequence does not end: %s %s %s", stage, action.Do, action.Message)
	}
	switch isSame := action.State != nil && action.State.Text() == seen.State.Text(); {
	case action.Do == deploymenthook.Save && isSame && (!action.IsOverruling || seen.IsOverruled):
		p.t.Fatalf("%s: got Save of an unchanged state: %s", stage, action.State.Text())
	case action.Do == deploymenthook.Wait && !action.Until.After(seen.Now):
		p.t.Fatalf("%s: got a wait that ends now: %q", stage, action.Message)
	}
	if action.State != nil && len(action.State.Text()) > 2000 {
		p.t.Fatalf("%s: the state grows: %s", stage, action.State.Text())
	}
}

// look returns the facts that a process sees.
func (p *process) look(stage deploymenthook.Stage) deploymenthook.RolloutFacts {
	seen := deploymenthook.RolloutFacts{
		Now:         p.now,
		State:       p.state(),
		IsOverruled: p.isOverruled,
		IsChanged:   p.isChanged,
		Refused:     p.refused,
	}
	for _, pod := range p.pods {
		seen.Pods = append(seen.Pods, pod.DeepCopy())
	}
	slices.SortFunc(seen.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	if p.live == nil {
		return seen
	}
	seen.Live = p.live.DeepCopy()
	if stage == deploymenthook.Mid && *p.live.Spec.Replicas == 0 {
		for _, pod := range p.own {
			seen.OldPods = append(seen.OldPods, pod.name)
		}
	}
	if stage == deploymenthook.Post && !p.noSet {
		seen.ReplicaSet = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-set", UID: "set"}}
	}
	return seen
}

// do does an action.
func (p *process) do(stage deploymenthook.Stage, action deploymenthook.HookAction) {
	switch action.Do {
	case deploymenthook.Compare:
		isChanged := deploymenthook.HashTemplate(p.live) != p.rollout.Template
		p.isChanged = &isChanged
	case deploymenthook.MakePaused:
		p.put(p.rollout.Desired, true)
	case deploymenthook.Create:
		p.createHook(action.Pod)
	case deploymenthook.Delete:
		p.delete(action.Pod.Name)
	case deploymenthook.Wait:
		p.jump(p.next(action.Until))
	case deploymenthook.Report:
		p.write(action.WithLastLine(stage, nil))
		p.refused = nil
	default:
		p.checkComplete(action)
		p.write(action)
		p.isOverruled = p.isOverruled || action.IsOverruling
	}
}

// createHook creates the pod of a hook, or records why the pod was refused.
func (p *process) createHook(pod *corev1.Pod) {
	err := p.create(pod)
	if err == nil {
		p.refused = nil
		return
	}
	if p.refused == nil || p.refused.Pod != pod.Name {
		p.refused = &deploymenthook.Refusal{Pod: pod.Name, Since: p.now}
	}
	p.refused.Cause, p.refused.IsFinal = err.Error(), p.isFinal
	if !p.isFinal {
		p.jump(p.now.Add(10 * time.Second)) // an error is tried again after a pause
	}
}

// checkComplete checks that each hook has run once when a rollout is complete.
func (p *process) checkComplete(action deploymenthook.HookAction) {
	before := p.state()
	isLeft := p.rollout.IsCreateOnly && action.State.Template != p.rollout.Template
	if before.Rollout != p.rollout.Template || action.State.Rollout != "" || action.Do == deploymenthook.GiveUp ||
		isLeft {
		return
	}
	for _, stage := range deploymenthook.Stages {
		progress, got := action.State.Hooks[stage], p.succeeded[string(stage)]
		switch {
		case p.rollout.Hooks.Of(stage) == nil || progress.Result == deploymenthook.Skipped:
		case progress.Result == deploymenthook.Succeeded && got != 1, progress.Result != deploymenthook.Succeeded &&
			got != 0, progress.Result == "":
			p.t.Fatalf("the rollout is complete: the %s hook: %q, and %d of its pods have succeeded", stage,
				progress.Result, got)
		}
	}
}
