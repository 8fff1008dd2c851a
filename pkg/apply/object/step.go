package object

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A WalkStep is one thing that a run does, and all that the walk knows of it.
type WalkStep interface {
	// ID names the step: events, changes, waits and failures go by it.
	ID() StepID
	// Needs returns the tasks whose objects must be ready before this step begins, by their places in the order. It is
	// asked when it is the step's turn, and whenever the run reports its progress.
	Needs() []int
	// Do tries the step once. The context ends when the run has to end, by its deadline or by Ctrl-C; requests that are
	// to arrive all the same have the run's own.
	Do(context.Context) TryResult
}

// A TryResult is what came of one try of a step.
type TryResult struct {
	Change // with an error if it has failed

	IsRetryable bool          // another try may succeed
	Pause       time.Duration // the least before that

	Wait *StepWait // the step is not done, and waits; nil if it does not
}

// A StepWait is what a step waits for, other than an object of the release. It is no failure: the step is tried again as
// soon as that has come, and no worker is held until then.
type StepWait struct {
	For    string
	Since  time.Time // by the server's clock; since the step waits, if it is zero
	Why    []string  // what keeps its pods
	Reason string
	Effect reason.Effect

	// Until begins to wait, and returns how to end that. What has come since the step was tried has to wake it, too. The
	// loop calls it, so it must not block. Wake may be called at once, and more than once. Cancel is called once, whether
	// the step was woken or not.
	Until func(wake func()) (cancel func())
}

// A StepBase is what all steps have: a name, and what comes before them.
type StepBase struct {
	Name StepID
	// After are the tasks that Needs returns.
	After []int
}

// ID returns the name of the step.
func (s StepBase) ID() StepID { return s.Name }

// Needs returns what comes before the step.
func (s StepBase) Needs() []int { return s.After }

// A manifestStep applies the manifest of an object, or deletes the object of a tombstone.
type manifestStep struct {
	StepBase
	applier  *Applier
	manifest *payload.Manifest
}

// NewStep returns the step of a manifest.
func (a *Applier) NewStep(m *payload.Manifest, needs []int) WalkStep {
	return manifestStep{StepBase{StepOf(m), needs}, a, m}
}

func (s manifestStep) Do(context.Context) TryResult {
	if s.manifest.IsTombstone() {
		return s.applier.Try(s.manifest, s.applier.Delete)
	}
	return s.applier.Try(s.manifest, s.applier.Apply)
}

// Try does something about a manifest, and returns what came of it.
func (a *Applier) Try(m *payload.Manifest, do func(*payload.Manifest) (Change, error)) TryResult {
	change, err := do(m)
	change.StepID = StepOf(m)
	if err == nil {
		return TryResult{Change: change}
	}
	change.Action, change.Err = Failed, NewFailure(m, err)
	return TryResult{Change: change, IsRetryable: a.IsRetryable(m, err), Pause: WantedPause(err)}
}
