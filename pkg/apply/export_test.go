package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Trusting returns options of a run that trusts earlier observations for a duration.
func (o Options) Trusting(look time.Duration) Options {
	o.LookCounts = look
	return o
}

// KeeperFuncs implements Keeper by functions, which may be nil.
type KeeperFuncs struct {
	OnTake     func(object.Change)
	OnNotReady func(*Report)
}

func (k KeeperFuncs) Take(change object.Change) {
	if k.OnTake != nil {
		k.OnTake(change)
	}
}

func (k KeeperFuncs) NotReady(report *Report) {
	if k.OnNotReady != nil {
		k.OnNotReady(report)
	}
}

// A Hook is a step of a test that comes before an object, or after it.
type Hook struct {
	Stage string // "pre" comes before the object
	// Try returns the awaited condition and a wait for it, or "" if the hook has run.
	Try func(context.Context) (waitsFor string, until func(wake func()) (cancel func()))
	// IsLate reports whether the hook needs the object to be ready.
	IsLate bool
}

// WithHooks returns options of a run whose manifests have hooks.
func (o Options) WithHooks(build func(*payload.Manifest) []Hook) Options {
	o.newSteps = func(applier *object.Applier) stepMaker {
		return func(steps []object.WalkStep, task int, m *payload.Manifest, needs []int) []object.WalkStep {
			var after []object.WalkStep
			for _, hook := range build(m) {
				id := object.StepOf(m)
				id.Hook = hook.Stage
				if hook.Stage == "pre" {
					steps, needs = append(steps, hookStep{object.StepBase{Name: id, After: needs}, hook}), nil
					continue
				}
				step := hookStep{object.StepBase{Name: id}, hook}
				if hook.IsLate {
					step.After = []int{task}
				}
				after = append(after, step)
			}
			return append(append(steps, applier.NewStep(m, needs)), after...)
		}
	}
	return o
}

type hookStep struct {
	object.StepBase
	Hook
}

func (s hookStep) Preview(*object.Previewer) (object.Change, error) {
	return object.Change{Action: object.NotNeeded}, nil
}

func (s hookStep) Do(ctx context.Context) object.TryResult {
	did := object.TryResult{Change: object.Change{StepID: s.Name, Action: object.Ran}}
	if what, until := s.Try(ctx); what != "" {
		changed := make(chan struct{}, 1)
		stop := until(func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		did.Wait = &object.StepWait{For: what, Pause: time.Hour, Changed: changed, Stop: stop}
	}
	return did
}
