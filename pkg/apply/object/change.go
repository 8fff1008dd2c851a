package object

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Action is what was done to an object.
type Action string

// The actions. The first five are about objects that are to be there, the next about
// tombstones.
const (
	Created    Action = "created"
	Configured Action = "configured" // it was there, and is not as it was
	Unchanged  Action = "unchanged"
	Recreated  Action = "recreated" // deleted and made again
	Kept       Action = "kept"      // it is not to be touched: create-only, or a Job that has finished

	Deleted    Action = "deleted"    // it is gone, by us
	Pending    Action = "pending"    // its end was asked for, and it is still there
	Absent     Action = "absent"     // it was not there
	Reappeared Action = "reappeared" // it is there again, and not deleted again by this run
	Left       Action = "left"       // it is there, and this run does not delete it

	Failed  Action = "failed"
	NotDone Action = "not done" // it was never its turn

	NotChecked Action = "not checkable" // of previews only: Message is the reason

	// Of lifecycle hooks.
	Ran       Action = "ran"
	Ignored   Action = "ignored"    // it has failed, and its failure policy lets the rollout go on
	NotNeeded Action = "not needed" // nothing of the Deployment changes
)

// HasChanged reports whether an action may have changed something that other objects need.
func (a Action) HasChanged() bool {
	return a == Created || a == Configured || a == Recreated || a == Deleted || a == Pending || a == Ran || a == Ignored
}

// A StepID names a step of a run: the object that it is about, and where the release asks for it.
type StepID struct {
	ID   kinds.ID
	Path string // of the file
	Line int
	Node string // the level and the component, from the name of the file
	Hook string // the stage of the object's lifecycle hook that the step runs; "" if it is about the object itself
}

// Name returns the name of the step in words.
func (s StepID) Name() string { return s.ID.OrHook(s.Hook) }

// StepOf returns the name of the step that a manifest asks for.
func StepOf(m *payload.Manifest) StepID {
	return StepID{ID: m.ID(), Path: m.Path, Line: m.Line, Node: graph.ParseName(m.File()).Words()}
}

// A Change is what came of one step.
type Change struct {
	StepID
	Action  Action
	UID     types.UID // of the object, if it is there
	Version string    // its resourceVersion, as the run left it
	Message string    // more about it: what holds a delete, why an object was kept
	Err     *Failure  // of what failed

	Look    *Look                // of a preview; nil where nothing would change
	Adopted []string             // managers whose fields have become ours
	Lost    []ownership.Conflict // fields that others had set otherwise
}

// A Look is what a preview has seen of an object that would change.
type Look struct {
	Live *unstructured.Unstructured // as it is; nil if it is not there
	// Would is what it would be: as the server returns it, or, without an answer, as
	// the release does.
	Would *unstructured.Unstructured
	// Unchecked is why the server could not be asked; "" if it was.
	Unchecked string
}

// A Failure is why a step could not be done. It is a reason.Error for errors.As, reason.Of and reason.EffectOf.
type Failure struct {
	StepID
	Reason string // upstream's, such as UpdatePayloadResourceInvalid
	Effect reason.Effect
	Err    error
	Why    []string // what keeps its pods, and their last log lines

	IsFinal bool // trying it again does not help
}

func (f *Failure) Error() string { return f.Text(0) }

// Text returns the failure in words, and that more objects have failed for the same cause.
func (f *Failure) Text(more int) string {
	where := fmt.Sprintf("%s:%d", f.Path, f.Line)
	if f.Node != "" {
		where += ", " + f.Node
	}
	message := strings.TrimPrefix(oneLine(f.Err), f.ID.String()+": ")
	name := f.Name()
	if more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	lines := []string{fmt.Sprintf("%s (%s): %s", name, printable.Line(where), message)}
	return strings.Join(append(lines, f.Why...), "\n  ")
}

// Cause returns what failures have in common that are the same but for the names of their objects.
func (f *Failure) Cause() string {
	return strings.Join(append([]string{f.Hook, f.Reason, f.ID.Without(oneLine(f.Err))}, f.Why...), "\n")
}

// Unwrap returns the cause as a reason.Error.
func (f *Failure) Unwrap() error {
	return &reason.Error{Reason: f.Reason, Effect: f.Effect, Err: f.Err}
}

// NewFailure returns the failure of what a manifest asks for, without what the error may quote of a Secret.
func NewFailure(m *payload.Manifest, err error) *Failure {
	failure := FailureOf(StepOf(m), err)
	failure.Err = masked(m, err)
	if tooLarge(err) {
		failure.Err = fmt.Errorf("it is too large: %w", failure.Err) // the message of etcd is only for those who know it
	}
	return failure
}

// FailureOf returns the failure of a step.
func FailureOf(step StepID, err error) *Failure {
	failure := &Failure{StepID: step, Effect: reason.EffectOf(err), Err: err}
	var ours refusal
	switch {
	case errors.As(err, &ours):
		failure.Reason = ours.reason
	case reason.Of(err) != "":
		failure.Reason = reason.Of(err)
	default:
		failure.Reason = causeOf(err).reason
	}
	return failure
}

// oneLine returns an error in a line.
func oneLine(err error) string { return printable.Line(err.Error()) }

// LossesInWords names fields, each with the manager that had set it.
func LossesInWords(lost []ownership.Conflict) string {
	const most = 5
	var words []string
	for i, loss := range lost {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(lost)-i))
			break
		}
		words = append(words, loss.Field+" ("+loss.Manager+")")
	}
	return strings.Join(words, ", ")
}
