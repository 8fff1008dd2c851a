// Package why explains why an object does not exist yet, or is not ready, or not gone: what it
// waits for, and who holds it. It reads the object itself, its kind and its namespace, and
// what a running apply has reported in the record of its release; without a record, the
// cluster alone.
//
// It changes nothing, and waits for nothing. A request that fails is reported, and the rest
// is answered all the same.
//
// Explain is the call to start from, with objects that a Resolver has found. GatherRelease reads the facts on a
// release, and Gather those on one object, each once; Judge makes an answer of them, without a cluster.
// ReleaseFacts.Explain does so for all objects of a release.
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

// An ObjectQuery is what is known before the cluster is asked about objects.
type ObjectQuery struct {
	Records   []*record.Record // of the releases that may have the objects
	Unread    string           // why other records can't be read; "" if all were
	Namespace string           // of the records
	Release   *payload.Payload // that is to have the objects; nil if it is not named

	// Explainers explain the objects of further kinds, for example machines.
	Explainers []diagnosis.Explainer

	known *ReleaseFacts // on the release; nil if they were not gathered
}

// ObjectFacts are what Judge judges.
type ObjectFacts struct {
	ReleaseFacts // on the release that has the object, or is to

	Object  kinds.ID
	Deletes bool // the user knows that it is to be deleted

	Seen            tombstone.Observation
	Live            *unstructured.Unstructured // nil if it does not exist, or can't be read
	Verdict         ready.Verdict              // on it
	Pods            []string                   // what keeps its pods
	Unmet           []Need                     // objects that it refers to and that do not exist, if it is not ready
	NeededBy        []string                   // the manifests of the query's release that refer to it
	Holders         map[string]string          // by finalizer: the field manager that has set it
	Unserved        *UnservedKind              // if its kind is not served
	ObjectNamespace *tombstone.Observation     // its namespace, if that is not simply there

	Owner   string    // the release that it is of
	Applied time.Time // when an apply changed it last
	IsNamed bool      // the record has a fingerprint of it
	IsKnown bool      // and the release has applied it
	Drift   *Drift    // how it differs from what was applied; nil if it does not, or nothing is known of it

	IsUnread      bool                  // records could not be read
	Others        int                   // how many releases there are, if it is not known which one is to have it
	PendingDelete *record.Tombstone     // its delete, if one is pending
	Pending       map[kinds.ID][]string // what keeps the pods of what the run waits for

	Plan *ReleasePlace          // its place in the release that the question named
	Gate []precondition.Finding // what would stop that release
}

// UnservedKind is a kind that the cluster does not serve.
type UnservedKind struct {
	Definition string // that has it; "" if there is none
	Verdict    ready.Verdict
}

// A ReleasePlace is the place of an object in the files of a release.
type ReleasePlace struct {
	Release, Version string
	File             string // "" if the release does not have it
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
	Gone        ObjectState = "gone"        // as wanted
	Absent      ObjectState = "absent"      // and it is to exist
	NotReady    ObjectState = "not ready"   // it exists
	Outdated    ObjectState = "outdated"    // it is as it was before: the apply has not reached it, or can't apply it
	Changed     ObjectState = "changed"     // it is ready, and was changed since it was applied
	Terminating ObjectState = "terminating" // it is being deleted
	Kept        ObjectState = "kept"        // it is to be deleted, and exists
	Blocked     ObjectState = "blocked"     // the apply has not reached it; only in the answer on a whole release
	Unknown     ObjectState = "unknown"
)

// stateTexts are the states as text.
var stateTexts = map[ObjectState]string{
	Ready:       "there and ready",
	Gone:        "gone, as it is to be",
	Absent:      "not there",
	NotReady:    "there, and not ready",
	Outdated:    "there as it was before",
	Changed:     "there, and not as it was applied",
	Terminating: "being deleted",
	Kept:        "there, and to be gone",
	Blocked:     "not its turn yet",
	Unknown:     "how it stands is not known",
}

// Text returns the state in words.
func (s ObjectState) Text() string { return stateTexts[s] }

// An Answer is the state of an object, and why.
type Answer struct {
	Object   kinds.ID    `json:"object"`
	State    ObjectState `json:"state"`
	Done     bool        `json:"done"`     // it is in its wanted state: ready, or gone
	Messages []Message   `json:"messages"` // the most important first
	Release  string      `json:"release,omitempty"`
	Version  string      `json:"version,omitempty"`
	File     string      `json:"file,omitempty"`
	Node     string      `json:"node,omitempty"`
	For      string      `json:"for,omitempty"`    // what it waits for, or the error of its apply
	Reason   string      `json:"reason,omitempty"` // of that
	Since    *time.Time  `json:"since,omitempty"`
	After    []string    `json:"after,omitempty"` // the nodes that are to be done before
	Holds    []Holding   `json:"holds,omitempty"` // what those wait for in the end
	Needs    []Need      `json:"needs,omitempty"`
	// who has changed it since it was applied, the newest first
	Changed    []ownership.Writer `json:"changed,omitempty"`
	Hooks      []HookStatus       `json:"hooks,omitempty"` // its lifecycle hooks that have not simply succeeded
	Finalizers []string           `json:"finalizers,omitempty"`
	Remaining  []string           `json:"remaining,omitempty"` // what is left in it
	Unknown    []string           `json:"unknown,omitempty"`   // on requests that failed
}

// A Message is a sentence with its details.
type Message = diagnosis.Message

// A Holding is a step of an apply that holds up others.
type Holding struct {
	Node   string          `json:"node"`
	Object kinds.ID        `json:"object"`
	Hook   string          `json:"hook,omitempty"` // of the object, if that is the step
	State  apply.StepPhase `json:"state"`
	For    string          `json:"for,omitempty"`
	Reason string          `json:"reason,omitempty"`
	Since  *time.Time      `json:"since,omitempty"`
	Why    []string        `json:"why,omitempty"` // what keeps its pods
}
