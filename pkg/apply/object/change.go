package object

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An Action is the result of a step for an object.
type Action string

// The actions. The first five are about objects of the release, the next about tombstones.
const (
	Created    Action = "created"
	Configured Action = "configured" // it existed, and was changed
	Unchanged  Action = "unchanged"
	Recreated  Action = "recreated" // deleted and created again
	Kept       Action = "kept"      // it is not written: create-only, or a finished Job

	Deleted    Action = "deleted"    // this release has deleted it
	Pending    Action = "pending"    // its delete was requested, and it still exists
	Absent     Action = "absent"     // it did not exist
	Reappeared Action = "reappeared" // it was created again, and this run does not delete it
	Left       Action = "left"       // it exists, and this run does not delete it

	Failed  Action = "failed"
	NotDone Action = "not done" // the run did not get to it

	NotChecked Action = "not checkable" // of previews only: Message is the reason

	// Of lifecycle hooks.
	Ran       Action = "ran"
	Ignored   Action = "ignored"    // it has failed, and its failure policy is Ignore
	NotNeeded Action = "not needed" // the rollout does not need it
)

// HasChanged reports whether an action may have changed an object on which others depend.
func (a Action) HasChanged() bool {
	return a == Created || a == Configured || a == Recreated || a == Deleted || a == Pending || a == Ran || a == Ignored
}

// A StepID names a step of a run: its object, and the place of the manifest in the release.
type StepID struct {
	ID   kinds.ID
	Path string // of the file
	Line int
	Node string // the level and the component, from the name of the file
	Hook string // the stage of the lifecycle hook that the step runs; "" if it applies or deletes the object
}

// Name names the object or hook of the step.
func (s StepID) Name() string { return s.ID.OrHook(s.Hook) }

// StepOf returns the StepID of a manifest.
func StepOf(m *payload.Manifest) StepID {
	return StepID{ID: m.ID(), Path: m.Path, Line: m.Line, Node: graph.ParseName(m.File()).Words()}
}

// A Change is the result of one step.
type Change struct {
	StepID
	Action  Action
	UID     types.UID // of the object, if it exists
	Version string    // its resourceVersion after the step
	Message string    // details: what holds a delete, why an object was kept
	Err     *Failure  // of a failed step

	Look    *Look                // of a preview; nil if nothing would change
	Adopted []string             // managers whose fields were adopted
	Lost    []ownership.Conflict // overwritten or removed fields of other managers

	Foreign []fields.ForeignFields // of a preview: what other managers have set, and the apply keeps
}

// A Look has the states of an object that would change, in a preview.
type Look struct {
	Live *unstructured.Unstructured // the present state; nil if it does not exist
	// Would is the state after the apply: the server's answer to a dry run, or, without one, the manifest
	// merged over Live.
	Would *unstructured.Unstructured
	// Unchecked is why the server could not validate Would; "" if it did.
	Unchecked string
}

// A Failure is why a step could not be done. It is a reason.Error for errors.As, reason.Of and reason.EffectOf.
type Failure struct {
	StepID
	Reason string // a reason of the cluster-version operator, such as UpdatePayloadResourceInvalid
	Err    error
	Why    []string // why its pods do not become ready, and their last log lines

	IsFinal bool      // another try does not help
	At      time.Time // when it was reported, by the server's clock
}

func (f *Failure) Error() string { return f.Text(0) }

// Text returns the failure in words, with the number of other objects that have failed for the same cause.
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

// Cause returns the text that failures share if they differ only in the names of their objects.
func (f *Failure) Cause() string {
	return strings.Join(append([]string{f.Hook, f.Reason, f.ID.Without(oneLine(f.Err))}, f.Why...), "\n")
}

// Unwrap returns the cause as a reason.Error.
func (f *Failure) Unwrap() error {
	return &reason.Error{Reason: f.Reason, Effect: f.Effect(), Err: f.Err}
}

// Effect returns the effect of the failure on the update.
func (f *Failure) Effect() reason.Effect { return reason.EffectOf(f.Err) }

// NewFailure returns the failure of a manifest's step, without values that the error may quote from a Secret.
func NewFailure(m *payload.Manifest, err error) *Failure {
	failure := FailureOf(StepOf(m), err)
	failure.Err = maskSecrets(m, err)
	if tooLarge(err) {
		failure.Err = fmt.Errorf("it is too large: %w", failure.Err) // etcd's message alone does not mention the size
	}
	return failure
}

// FailureOf returns the failure of a step.
func FailureOf(step StepID, err error) *Failure {
	failure := &Failure{StepID: step, Err: err}
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
