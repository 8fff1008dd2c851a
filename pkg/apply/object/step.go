package object

import (
	"context"
	"time"
)

// A WalkStep is one action of a run, as the walk sees it.
type WalkStep interface {
	StepPlace
	// Do tries the step once. The context ends with the run, by its deadline or by Ctrl-C; requests that may complete
	// after that have the context of Requests.
	Do(context.Context) TryResult
	// Preview returns the change that the step would make.
	Preview(*Previewer) (Change, error)
}

// A StepPlace is the place of a step in a run.
type StepPlace interface {
	// ID names the step: events, changes, waits and failures go by it.
	ID() StepID
	// Needs returns the tasks whose objects must be ready before this step begins, by their places in the order. It is
	// called when the step may begin, and whenever the run reports its progress.
	Needs() []int
}

// A TryResult is the result of one try of a step.
type TryResult struct {
	Change // has an error if the attempt failed

	IsRetryable bool          // another try may succeed
	Pause       time.Duration // the shortest pause before another try

	Wait *StepWait // nil if the step does not wait; otherwise it is not done
}

// A StepWait is the wait of a step for an event other than the readiness of an object. It is not a failure: the step is
// tried again on the event, and holds no worker until then.
type StepWait struct {
	For   string
	Since time.Time // server time; zero means the start of the wait

	// The wait is over after a pause, or as soon as Changed receives an element or is closed. An event since the try
	// has to end it as well. Stop is called once, when the wait is over.
	Pause   time.Duration
	Changed <-chan struct{}
	Stop    func()
}

// A StepBase contains the common fields of all steps.
type StepBase struct {
	Name StepID
	// After are the tasks that Needs returns.
	After []int
}

func (s StepBase) ID() StepID { return s.Name }

func (s StepBase) Needs() []int { return s.After }
