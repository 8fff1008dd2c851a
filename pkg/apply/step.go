package apply

import (
	"context"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/reason"
)

// A step is one thing that a run does, and all that the walk knows of it.
type step interface {
	// ID names the step: events, changes, waits and failures go by it.
	ID() object.StepID
	// Needs returns the tasks whose objects must be ready before this step begins, by their places in the order. It is
	// asked when it is the step's turn, and whenever the run tells how it stands.
	Needs() []int
	// Do tries the step once. The context ends when the run has to end, by its deadline or by Ctrl-C; requests that are
	// to arrive all the same have the run's own.
	Do(context.Context) outcome
}

// An outcome is what came of one try of a step.
type outcome struct {
	object.Change // with an error if it has failed

	isRetryable bool          // another try may succeed
	pause       time.Duration // the least before that

	wait *stepWait // the step is not done, and waits; nil if it does not
}

// A stepWait is what a step waits for, other than an object of the release. It is no failure: the step is tried again as
// soon as that has come, and no worker is held until then.
type stepWait struct {
	For    string
	Since  time.Time // by the server's clock; since the step waits, if it is zero
	Why    []string  // what keeps its pods
	Reason string
	Effect reason.Effect

	// until begins to wait, and returns how to end that. What has come since the step was tried has to wake it, too. The
	// loop calls it, so it must not block. Wake may be called at once, and more than once. Cancel is called once, whether
	// the step was woken or not.
	until func(wake func()) (cancel func())
}

// stepBase is what all steps have: a name, and what comes before them.
type stepBase struct {
	id    object.StepID
	needs []int
}

func (s stepBase) ID() object.StepID { return s.id }
func (s stepBase) Needs() []int      { return s.needs }

// An objectStep makes an object what its manifest says.
type objectStep struct {
	stepBase
	manifest *payload.Manifest
	applier  *object.Applier
	isDone   bool // once: what was seen of the object before does not count any more
}

func (s *objectStep) Do(context.Context) outcome {
	apply := s.applier.Apply
	if s.isDone {
		apply = s.applier.Reapply
	}
	did := try(s.applier, s.manifest, apply)
	s.isDone = s.isDone || did.Err == nil
	return did
}

// A deleteStep deletes the object of a tombstone.
type deleteStep struct {
	stepBase
	tombstone *payload.Manifest
	applier   *object.Applier
}

func (s deleteStep) Do(context.Context) outcome {
	return try(s.applier, s.tombstone, s.applier.Delete)
}

// A newSteps appends the steps that a task asks for, in the order in which they are done. One of them is about the object
// itself. Needs are the tasks that the first step needs.
type newSteps func(steps []step, task int, m *payload.Manifest, needs []int) []step

// newSteps appends the steps that a task asks for.
func (r *run) newSteps(steps []step, task int, m *payload.Manifest, needs []int) []step {
	if r.options.newSteps != nil {
		return r.options.newSteps(r, steps, task, m, needs)
	}
	return hookSettings{requests: r.requests, cluster: r.cluster, applier: r.applier, results: r.results, options: r.options, readiness: r.tracker}.newSteps(steps, task, m, needs)
}

// newSteps appends the steps that a task asks for.
func (s hookSettings) newSteps(steps []step, task int, m *payload.Manifest, needs []int) []step {
	if h := s.of(task, m); h != nil {
		return h.steps(steps, needs)
	}
	return append(steps, newStep(m, needs, s.applier))
}

// newStep returns the step that does what a manifest says about its object.
func newStep(m *payload.Manifest, needs []int, applier *object.Applier) step {
	base := stepBase{object.StepOf(m), needs}
	if m.IsTombstone() {
		return deleteStep{base, m, applier}
	}
	return &objectStep{stepBase: base, manifest: m, applier: applier}
}

// try does something about a manifest, and returns what came of it.
func try(applier *object.Applier, m *payload.Manifest, do func(*payload.Manifest) (object.Change, error)) outcome {
	change, err := do(m)
	change.StepID = object.StepOf(m)
	if err == nil {
		return outcome{Change: change}
	}
	change.Action, change.Err = object.Failed, object.NewFailure(m, err)
	return outcome{Change: change, isRetryable: applier.IsRetryable(m, err), pause: object.WantedPause(err)}
}
