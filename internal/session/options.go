package session

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/internal/session/notify"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// DefaultNamespace is the namespace of records and locks, unless Options name another one.
const DefaultNamespace = "runlevel-system"

// Options configure an apply. An empty Apply.Mode is chosen by the record.
type Options struct {
	Namespace string   // namespace of the record and the lock; empty means DefaultNamespace
	Source    string   // the source of the payload, for the history
	Own       string   // the source that an operator was started with, for the record
	Force     bool     // go on although the gate refuses the apply
	Verified  bool     // the signatures of the payload's image were, for the history
	Forced    []string // risks that were overridden before, for the history
	// CreateNamespace creates the namespace of objects whose manifests name none, if it does not exist.
	CreateNamespace bool
	// Rollback is set if the payload was read from the files of an earlier update of the release.
	Rollback *record.Rollback
	Lock     lock.Options
	Apply    apply.Options
	Files    FileOptions
	Notify   *notify.Sender // sends events of the release; nil sends none
	HasTests bool           // tests follow, and Outcome.Completed is reported after them
	// LeftOut is why the payload lacks manifests of the release, if it does: the apply is recorded as incomplete,
	// deletes nothing, and has no orphans.
	LeftOut error
	// Keep configures how the payload is kept in place, until the context ends; nil ends when everything is applied.
	// Its Apply and WasComplete are set by the session.
	Keep *keep.Options
	// Observer follows the apply; nil does not.
	Observer Observer

	onlySame bool // refuse a payload that differs from the last one, if another process has begun the last one
}

// An Observer follows an apply.
type Observer interface {
	// OnBegin is called before anything is written. An error ends the apply.
	OnBegin(*Outcome) error
	// OnRecorded is called when the record has the update, before its first object is applied. The connection writes
	// only while the lock is held. An error ends the apply.
	OnRecorded(context.Context, *cluster.Cluster) error
	// OnOutcome is called with the outcome of an apply with Options.Keep: when all objects are ready, and before that,
	// once, when not all are ready in time. It is also called when an outage of the API server interrupts the apply,
	// which continues after the outage.
	OnOutcome(*Outcome)
}

// NoObserver is an Observer that does nothing. Others embed it.
type NoObserver struct{}

func (NoObserver) OnBegin(*Outcome) error                             { return nil }
func (NoObserver) OnRecorded(context.Context, *cluster.Cluster) error { return nil }
func (NoObserver) OnOutcome(*Outcome)                                 {}

// An Outcome is the result of an apply, a preview or an inspection.
type Outcome struct {
	Release  string
	Version  string
	Previous string // the version that was applied before; empty if there was none
	Begun    string // the version that began last; empty if there was none
	Mode     graph.Mode
	Findings []precondition.Finding // findings of the gate
	Forced   []string               // checks of the gate that were overridden
	Report   *apply.Report          // nil if the apply was not begun
	Deletes  []precondition.Delete  // those that are pending at the end
	Orphans  []Orphan
	Notes    []string // requests that failed
	// FileWarnings report files that could not be stored, or files of earlier versions that could not be deleted.
	FileWarnings []string
	Took         time.Duration
	Durations    record.Durations // durations of the last completed apply of this mode
	IsSame       bool             // the last apply had the same version and content
	WasLeftOut   bool             // the last apply has applied everything but left out manifests
	Err          error            // why not everything is done
	// IsInterrupted is set if the API server did not answer, and the apply continues when it does.
	IsInterrupted bool

	// Completed is the event of a complete apply that was not reported: see Options.HasTests.
	Completed notify.Event

	record types.UID // UID of the ConfigMap; "" if there was none
}

// afterOutage returns the options of an apply that continues after an outage. It keeps changes of other processes.
func (o Options) afterOutage() Options {
	o.Apply.Mode = "" // the requested mode was for the first apply
	o.onlySame = true
	return o
}
