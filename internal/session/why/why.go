// Package why explains why an object does not exist yet, is not ready, or is not deleted: the reason why it waits, and
// who holds it. It reads the object itself, its kind and its namespace, and the progress of a running apply from the
// record of its release. Without a record, it reads only the cluster.
//
// It changes nothing, and never waits. A failed request is reported, and the rest of the answer is valid nevertheless.
//
// GatherRelease reads the facts about a release, and Gather the facts about one object, each once. Judge creates an
// answer from the facts, without a cluster. ReleaseFacts.Explain does so for all objects of a release. Start with
// Explain, with objects that a Resolver has found.
package why

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An ObjectQuery contains the facts that are known before objects are read from the cluster.
type ObjectQuery struct {
	Records   []*record.Record // records of the releases that may have the objects
	Unread    string           // why other records can't be read; "" if all were read
	Namespace string           // namespace of the records
	Release   *payload.Payload // the named release; nil if the user names none

	// Explainers explain the objects of further kinds, for example machines.
	Explainers []diagnosis.Explainer

	known *ReleaseFacts // nil if they were not gathered
}

// ObjectFacts are the input of Judge.
type ObjectFacts struct {
	ReleaseFacts // about the release that has the object, or will have it

	Object  kinds.ID
	Deletes bool // the user has passed a tombstone of the object

	Seen            tombstone.Observation
	Live            *unstructured.Unstructured // nil if it does not exist, or can't be read
	Verdict         ready.Verdict
	Pods            []string               // why its pods are not ready
	Unmet           []Need                 // missing objects that it refers to, if it is not ready
	NeededBy        []string               // the manifests of the query's release that refer to it
	Holders         map[string]string      // finalizer -> the field manager that has set it
	Unserved        *UnservedKind          // set if its kind is not served
	ObjectNamespace *tombstone.Observation // its namespace, if it is missing or being deleted

	Owner   string    // the release that the object belongs to
	Applied time.Time // time of the last apply that changed it
	IsNamed bool      // the record has a fingerprint of the object
	IsKnown bool      // the release has applied it
	Drift   *Drift    // the changes since the last apply; nil if there are none, or they are not known

	IsUnread      bool                  // records could not be read
	Others        int                   // number of releases, if it is unknown which one has the object
	PendingDelete *record.Tombstone     // its delete, if one is pending
	Pending       map[kinds.ID][]string // why the pods of the objects that the run waits for are not ready

	Plan *ReleasePlace          // its place in the release that the question named
	Gate []precondition.Finding // the findings that would stop that release
}

// UnservedKind is a kind that the cluster does not serve.
type UnservedKind struct {
	Definition string // the CustomResourceDefinition of the kind; "" if it does not exist
	Verdict    ready.Verdict
}

// A ReleasePlace is the place of an object in the files of a release.
type ReleasePlace struct {
	Release, Version string
	File             string // "" if the release does not have the object
	Node             string
	Deletes          bool     // it is a tombstone
	After            []string // the nodes right before its own
	Needs            []Need
	IsRecorded       bool // it is the version that the record has newest
}

// A Need is an object that must exist before.
type Need struct {
	Object kinds.ID `json:"object"`
	File   string   `json:"file"`
	Node   string   `json:"node,omitempty"`
	Why    string   `json:"why"`
}

// An ObjectState is the state of an object.
type ObjectState string

// The states.
const (
	Ready       ObjectState = "ready"
	Deleted     ObjectState = "gone"        // it was deleted as requested
	Absent      ObjectState = "absent"      // it should exist
	NotReady    ObjectState = "not ready"   // it exists
	Outdated    ObjectState = "outdated"    // the apply has not reached it, or can't apply it
	Changed     ObjectState = "changed"     // ready, and changed since it was applied
	Terminating ObjectState = "terminating" // it is being deleted
	Kept        ObjectState = "kept"        // it should be deleted, and exists
	Blocked     ObjectState = "blocked"     // the apply has not reached it; only in the answer on a whole release
	Unknown     ObjectState = "unknown"
)

// stateTexts are the states as text.
var stateTexts = map[ObjectState]string{
	Ready:       "ready",
	Deleted:     "deleted, as requested",
	Absent:      "missing",
	NotReady:    "not ready",
	Outdated:    "not updated yet",
	Changed:     "changed since it was applied",
	Terminating: "being deleted",
	Kept:        "not deleted yet",
	Blocked:     "waiting for its turn",
	Unknown:     "state unknown",
}

// Text returns the state in words.
func (s ObjectState) Text() string { return stateTexts[s] }

// An Answer is the state of an object, and why.
type Answer struct {
	Object   kinds.ID    `json:"object"`
	State    ObjectState `json:"state"`
	Done     bool        `json:"done"`     // it is in its wanted state: ready, or deleted
	Messages []Message   `json:"messages"` // the most important first
	Release  string      `json:"release,omitempty"`
	Version  string      `json:"version,omitempty"`
	File     string      `json:"file,omitempty"`
	Node     string      `json:"node,omitempty"`
	For      string      `json:"for,omitempty"`    // the reason why it waits, or the error of its apply
	Reason   string      `json:"reason,omitempty"` // reason of the wait or error
	Since    *time.Time  `json:"since,omitempty"`
	After    []string    `json:"after,omitempty"` // the nodes that must be done before
	Holds    []Holding   `json:"holds,omitempty"` // the steps that those nodes wait for in the end
	Needs    []Need      `json:"needs,omitempty"`
	// managers that have changed it since it was applied, the newest first
	Changed    []ownership.Writer `json:"changed,omitempty"`
	Hooks      []HookStatus       `json:"hooks,omitempty"` // its lifecycle hooks that have not simply succeeded
	Finalizers []string           `json:"finalizers,omitempty"`
	Remaining  []string           `json:"remaining,omitempty"` // the objects that remain in it
	Unknown    []string           `json:"unknown,omitempty"`   // requests that failed
}

// A Message is a sentence with its details.
type Message = diagnosis.Message

// A Holding is a step of an apply that holds up others.
type Holding struct {
	Node   string          `json:"node"`
	Object kinds.ID        `json:"object"`
	Hook   string          `json:"hook,omitempty"` // the hook of the object, if the step is a hook
	State  apply.StepPhase `json:"state"`
	For    string          `json:"for,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Since  *time.Time      `json:"since,omitempty"`
	Why    []string        `json:"why,omitempty"` // why its pods are not ready
}
