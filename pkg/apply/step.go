package apply

import (
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A step is one thing that a run does, and all that the walk knows of it.
type step interface {
	// ID names the step: events, changes, waits and failures go by it.
	ID() object.StepID
	// Needs returns the steps whose objects must be ready before this one begins, by their places in the order.
	Needs() []int
	// Do tries the step once.
	Do() outcome
}

// An outcome is what came of one try of a step.
type outcome struct {
	object.Change // with an error if it has failed

	isRetryable bool          // another try may succeed
	pause       time.Duration // the least before that
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

func (s *objectStep) Do() outcome {
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

func (s deleteStep) Do() outcome { return try(s.applier, s.tombstone, s.applier.Delete) }

// newStep returns the step that a manifest asks for.
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
	return outcome{change, applier.IsRetryable(m, err), object.WantedPause(err)}
}
