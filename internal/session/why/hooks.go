package why

import (
	"fmt"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply"
)

// A HookStatus is the status of a lifecycle hook of a Deployment that has not succeeded, or not without failures.
type HookStatus struct {
	Object   kinds.ID             `json:"object"`
	Hook     deploymenthook.Stage `json:"hook"`
	State    HookState            `json:"state"`
	Since    *time.Time           `json:"since,omitempty"`    // start time, if the hook has not ended
	Failures int                  `json:"failures,omitempty"` // failed attempts
	Message  string               `json:"message,omitempty"`  // message of the last failure
	By       string               `json:"by,omitempty"`       // the user who has skipped it, or has it run again
}

// A HookState is the state of a hook.
type HookState string

// The states of hooks.
const (
	HookRunning HookState = "running" // the hook runs or waits for its next attempt
	HookStopped HookState = "stopped" // it has failed and blocked the rollout: the next apply begins with it
	HookIgnored HookState = "ignored" // it has failed, and the rollout has continued
	HookSkipped HookState = "skipped" // a user has skipped it
)

// HookStatuses returns the statuses of the hooks in a record, without those that have succeeded.
func HookStatuses(rec *record.Record) []HookStatus {
	var all []HookStatus
	for _, hooks := range rec.Hooks {
		for _, stage := range deploymenthook.Stages {
			if progress, exists := hooks.Hooks[stage]; exists {
				all = append(all, hookStatusOf(rec, hooks, stage, progress)...)
			}
		}
	}
	return all
}

// hookStatusOf returns the status of one hook; nil if it has succeeded, or was not started.
func hookStatusOf(rec *record.Record, d record.DeploymentHooks, stage deploymenthook.Stage,
	progress deploymenthook.HookProgress) []HookStatus {
	found := HookStatus{
		Object:   d.ID,
		Hook:     stage,
		Failures: progress.Failures,
		Message:  printable.Line(progress.Message),
		By:       printable.Line(progress.By),
	}
	isUnderWay := d.Rollout != "" && progress.Result == ""
	switch {
	case progress.Result == deploymenthook.Ignored:
		found.State = HookIgnored
	case progress.Result == deploymenthook.Skipped:
		found.State = HookSkipped
	case isUnderWay && progress.Began != nil:
		found.State, found.Since = HookRunning, &progress.Began.Time
	case isUnderWay:
		found.State, found.Message = HookStopped, stopMessage(rec, d.ID, stage)
	default:
		return nil
	}
	return []HookStatus{found}
}

// stopMessage returns why the last apply ended at a hook; "" if the record has no reason.
func stopMessage(rec *record.Record, id kinds.ID, stage deploymenthook.Stage) string {
	for _, step := range apply.StateOf(rec.Run).Steps() {
		if step.ID == id && step.Hook == string(stage) && step.Phase == apply.HasFailed {
			return printable.Line(step.For)
		}
	}
	newest := rec.Newest()
	if newest == nil || newest.End == nil {
		return ""
	}
	index := slices.IndexFunc(newest.End.Failures, func(f record.ObjectFailure) bool {
		return f.ID == id && f.Hook == string(stage)
	})
	if index < 0 {
		return ""
	}
	return printable.Line(newest.End.Failures[index].Message)
}

// Sentence describes the state of the hook, and the remedy. Name is the name of the hook in the sentence.
func (h HookStatus) Sentence(name string, now time.Time) string {
	switch h.State {
	case HookSkipped:
		return fmt.Sprintf("%s was skipped by %s", name, h.By)
	case HookIgnored:
		return fmt.Sprintf("%s has failed, and is ignored%s", name, after(": ", h.Message))
	case HookStopped:
		return fmt.Sprintf("%s has failed and blocked the rollout%s; run apply again to retry it, or pass "+
			"--skip-hook %s/%s:%s",
			name, after(": ", h.Message), printable.Line(h.Object.Namespace), printable.Line(h.Object.Name), h.Hook)
	}
	text := fmt.Sprintf("%s has been running for %s", name, printable.Age(now, *h.Since))
	if h.Failures > 0 {
		text += fmt.Sprintf(", and %s failed%s", printable.Count(h.Failures, "attempt"),
			after(", the last one: ", h.Message))
	}
	return text
}

// after returns a text with a prefix; "" if the text is empty.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// explainHooks adds the states of the hooks of a Deployment, without regard to the step of the apply.
func explainHooks(f *ObjectFacts, a *Answer) {
	if f.Record == nil {
		return
	}
	for _, hookStatus := range HookStatuses(f.Record) {
		if hookStatus.Object != f.Object {
			continue
		}
		a.Hooks = append(a.Hooks, hookStatus)
		_, step, isLeft := f.step()
		isReported := isLeft && step.Hook == string(hookStatus.Hook) // the run reports the hook
		if isReported && hookStatus.State == HookRunning && hookStatus.Failures == 0 {
			continue
		}
		if isReported && step.Phase == apply.HasFailed {
			hookStatus.Message = ""
		}
		a.addMessage(nil, "%s", hookStatus.Sentence("its "+string(hookStatus.Hook)+" hook", f.Now))
	}
}
