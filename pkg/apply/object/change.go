package object

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
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
	Configured Action = "configured" // the object existed, and was changed
	Unchanged  Action = "unchanged"
	Recreated  Action = "recreated" // deleted and created again
	Kept       Action = "kept"      // not written: a create-only object, or a finished Job

	Deleted    Action = "deleted"    // this release has deleted the object
	Pending    Action = "pending"    // its delete was requested, and the object still exists
	Absent     Action = "absent"     // the object did not exist
	Reappeared Action = "reappeared" // the object was created again, and this run does not delete it
	Left       Action = "left"       // the object exists, and this run does not delete it

	Failed  Action = "failed"
	NotDone Action = "not done" // the run did not reach the step

	NotChecked Action = "not checkable" // only used in previews: Message is the reason

	// Of lifecycle hooks.
	Ran       Action = "ran"
	Ignored   Action = "ignored"    // the hook has failed, and its failure policy is Ignore
	NotNeeded Action = "not needed" // the rollout does not need the hook
)

// HasChanged reports whether an action may have changed an object on which others depend.
func (a Action) HasChanged() bool {
	return a == Created || a == Configured || a == Recreated || a == Deleted || a == Pending || a == Ran || a == Ignored
}

// actionOf returns the action of an apply. Began is the time before the apply, by the server's clock.
func (a *Applier) actionOf(o *liveObject, applied cluster.WriteResult, after objectmeta.LiveMetadata,
	began time.Time) Action {
	before := o.head
	switch {
	case applied.Created && o.exists: // the object existed when the run began
		return Recreated
	case applied.Created || o.isMade:
		return Created
	}
	if !o.exists || before.UID != after.UID || len(o.added) > 0 {
		return Configured
	}
	if before.ResourceVersion == after.ResourceVersion {
		return Unchanged
	}
	// The object was written since it was read: by this apply, or by a controller that wrote its
	// status, for example. An apply that changes anything updates the time of our entry, which has
	// whole seconds: for a young entry, only the generation and the metadata show a change.
	if !before.Entry.Same(after.Entry) {
		return Configured
	}
	isSame := after.Generation != 0 && before.Generation == after.Generation && before.HasMetadataOf(o.Object()) &&
		a.served.countsChanges(o.resource)
	if isSame || began.Sub(after.Entry.Since) > entryDoubt {
		return Unchanged
	}
	return Configured
}

// entryDoubt is the age from which the time of an entry shows whether this apply has updated it:
// the time has whole seconds, and the estimate of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second

// A StepID names a step of a run: its object, and the place of the manifest in the release.
type StepID struct {
	ID   kinds.ID
	Path string // path of the file
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
	UID     types.UID // UID of the object, if it exists
	Version string    // its resourceVersion after the step
	Message string    // details: what holds a delete, why an object was kept
	Err     *Failure  // error of a failed step

	Look    *Look                // only set in previews; nil if nothing would change
	Adopted []string             // managers whose fields were adopted
	Lost    []ownership.Conflict // overwritten or removed fields of other managers

	Foreign []fields.ForeignFields // only set in previews: fields of other managers that the apply keeps
}

// A Look contains the states of an object that would change, in a preview.
type Look struct {
	Live *unstructured.Unstructured // the present state; nil if it does not exist
	// Would is the state after the apply: the server's answer to a dry run, or, without one, the manifest
	// merged over Live.
	Would *unstructured.Unstructured
	// Unchecked is the reason if the server could not validate Would; "" if it did.
	Unchecked string
}

// A Failure is the error of a failed step. It is a reason.Error for errors.As, reason.Of and reason.EffectOf.
type Failure struct {
	StepID
	Reason string // a reason of the cluster-version operator, such as UpdatePayloadResourceInvalid
	Err    error
	Why    []string // reasons of pods that do not become ready, and their last log lines

	IsFinal bool      // another try does not help
	At      time.Time // server time of the report
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
	if isTooLarge(err) {
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
