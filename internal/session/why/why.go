// Package why says why an object is not there yet, or not ready, or not gone: what it waits
// for, and who holds it. It looks at the object itself, at its kind and its namespace, and
// at what a running apply has told in the record of its release; without a record, at the
// cluster alone.
//
// It changes nothing, and waits for nothing. What can't be asked for is said, and the rest
// answered all the same.
//
// Gather asks the cluster for the facts, once; Judge makes an answer of them, and asks no cluster.
// OfRelease does both for all objects of a release.
package why

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// An ObjectQuery is about one object.
type ObjectQuery struct {
	Object    kinds.ID
	Deletes   bool             // who asks says that it is to be gone
	Records   []*record.Record // of the releases that may have it
	Namespace string           // where those are
	Release   *payload.Payload // the release that is to have it; nil if it is not named

	keeping *keeping // what was found out of the release before; nil if nothing was
}

// ObjectFacts are what Judge judges.
type ObjectFacts struct {
	Now     time.Time // by the server's clock
	Object  kinds.ID
	Deletes bool // who asks says that it is to be gone

	Seen     tombstone.Observation
	Live     *unstructured.Unstructured // nil if it is not there, or can't be read
	Verdict  ready.Verdict              // on it
	Pods     []string                   // what keeps its pods
	Holders  map[string]string          // by finalizer: the field manager that has set it
	Unserved *UnservedKind              // if its kind is not served
	Home     *tombstone.Observation     // its namespace, if that is not simply there

	Owner   string    // the release that it is of
	Applied time.Time // when an apply changed it last
	IsNamed bool      // the record says that the release has it
	IsKnown bool      // the record says that the release has applied it
	Drift   *Drift    // how it differs from what was applied; nil if it does not, or nothing is known of it

	Record      *record.Record        // of the release that has it, or is to; nil if there is none
	Held        *lock.Holder          // who applies that release; nil if no process does
	IsHeldKnown bool                  // that could be asked
	NotKept     *NotKept              // why the release is not kept in place that a process is to keep; nil if none is, or one does
	IsUnread    bool                  // records could not be read
	Others      int                   // how many releases there are, if it is not known which one is to have it
	Asked       *record.Tombstone     // its delete, if one is pending
	Pending     map[kinds.ID][]string // what keeps the pods of what the run waits for

	Plan *ReleasePlace               // its place in the release that the question named
	Gate []precondition.CheckFinding // what would stop that release

	Unknown []string // what could not be found out
}

// UnservedKind is a kind that the cluster does not serve.
type UnservedKind struct {
	Definition string // that has it; "" if there is none
	Verdict    ready.Verdict
}

// A ReleasePlace is what the files of a release say of an object.
type ReleasePlace struct {
	Release, Version string
	File             string // "" if the release does not have it
	Node             string
	Deletes          bool     // it is a tombstone
	After            []string // the nodes right before its own
	Needs            []Need
	IsRecorded       bool // it is the version that the record has newest
}

// A Need is an object that must be there before.
type Need struct {
	Object kinds.ID `json:"object"`
	File   string   `json:"file"`
	Node   string   `json:"node,omitempty"`
	Why    string   `json:"why"`
}

// An ObjectState is how the object stands.
type ObjectState string

// The states.
const (
	Ready       ObjectState = "ready"
	Gone        ObjectState = "gone"        // as it is to be
	Absent      ObjectState = "absent"      // and it is to be there
	NotReady    ObjectState = "not ready"   // it is there
	Outdated    ObjectState = "outdated"    // it is there as it was, and the apply has not come to it, or can't do it
	Changed     ObjectState = "changed"     // it is there and ready, and is not as it was applied
	Terminating ObjectState = "terminating" // it is on its way out
	Kept        ObjectState = "kept"        // it is there, and is to be gone
	Blocked     ObjectState = "blocked"     // the apply has not come to it; only told of a release as a whole
	Unknown     ObjectState = "unknown"
)

// An Answer says how an object stands, and why.
type Answer struct {
	Object     kinds.ID           `json:"object"`
	State      ObjectState        `json:"state"`
	Done       bool               `json:"done"`     // it is as it is to be: ready, or gone
	Messages   []Message          `json:"messages"` // the most important first
	Release    string             `json:"release,omitempty"`
	Version    string             `json:"version,omitempty"`
	File       string             `json:"file,omitempty"`
	Node       string             `json:"node,omitempty"`
	For        string             `json:"for,omitempty"`    // what it waits for, or the error of its apply
	Reason     string             `json:"reason,omitempty"` // of that
	Since      *time.Time         `json:"since,omitempty"`
	After      []string           `json:"after,omitempty"` // the nodes that are to be done before
	Holds      []Holding          `json:"holds,omitempty"` // what those wait for in the end
	Needs      []Need             `json:"needs,omitempty"`
	Changed    []ownership.Writer `json:"changed,omitempty"` // who has changed it since it was applied, the newest first
	Hooks      []HookStanding     `json:"hooks,omitempty"`   // its lifecycle hooks that have not simply succeeded
	Finalizers []string           `json:"finalizers,omitempty"`
	Remaining  []string           `json:"remaining,omitempty"` // what is left in it
	Unknown    []string           `json:"unknown,omitempty"`   // what could not be found out
}

// A Message is one thing that is said, with what else there is to know of it.
type Message struct {
	Text    string   `json:"text"`
	Details []string `json:"details,omitempty"`
}

// A Holding is a step of an apply that holds up others.
type Holding struct {
	Node   string           `json:"node"`
	Object kinds.ID         `json:"object"`
	Hook   string           `json:"hook,omitempty"` // of the object, if that is the step
	State  record.StepState `json:"state"`
	For    string           `json:"for,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Since  *time.Time       `json:"since,omitempty"`
	Why    []string         `json:"why,omitempty"` // what keeps its pods
}
