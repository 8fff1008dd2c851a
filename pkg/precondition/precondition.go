// Package precondition is the gate of an update: it says before anything is written what
// speaks against it. Gather asks the cluster for the facts, once; what they mean is said by
// a list of small checks, which ask nobody and look at no clock.
//
// It applies nothing and overrides nothing: whoever calls it decides what becomes of what
// blocks, and writes down what was overridden.
//
// Gather and Evaluate are the calls to start from; Refuse makes an error of what blocks.
package precondition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

// ReasonFailed is that of an update which the gate stops, in the words of the
// cluster-version operator.
const ReasonFailed = "UpgradePreconditionCheckFailed"

// Facts are what the checks judge.
type Facts struct {
	Now      time.Time           // by the server's clock
	Payload  *payload.Payload    // what is asked for
	Record   *record.Record      // of its release
	Held     *record.Held        // an apply of the release that runs; nil if none does
	Deletes  []Delete            // that were asked for, and were not seen done
	There    []kinds.ID          // objects of tombstones that a release still has
	Claims   []Claim             // on objects that other releases have
	Homeless []*payload.Manifest // of a kind that is in namespaces, and in none
	Unserved []Unserved          // manifests whose kind is not there, or not known to be

	Terminating []Terminating // objects that the update needs, and that are being deleted
	Elsewhere   []string      // namespaces that have a record of the release, if the one that was asked for has none

	User      string  // who we are, if rights are missing and the server says it
	Missing   []Right // rights that we lack
	RightsErr error   // why rights could not be asked for
}

// A Delete is one that was asked for, and what became of it.
type Delete struct {
	record.Tombstone
	Seen tombstone.Observation
}

// WasSent says whether the delete was asked for, as far as is known: an object that is on its way
// out counts, whoever asked for that. Before its turn in an update, a delete is only noted.
func (d Delete) WasSent() bool { return d.Sent || d.Seen.State != tombstone.Present }

// Describe says to people how it stands, in one line.
func (d Delete) Describe(now time.Time) string {
	if d.WasSent() {
		return d.Seen.Describe(now)
	}
	return "still there, and its delete was not asked for yet"
}

// A Claim is a manifest whose object another release has.
type Claim struct {
	Manifest *payload.Manifest
	Release  string // the other
}

// A Right is one that is needed.
type Right struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string // "" for what is in none
	// Manifests need it. There are none for what the record and the lock need.
	Manifests []*payload.Manifest
}

// An Unserved manifest is one whose kind and version are neither served nor defined by the
// payload.
type Unserved struct {
	Manifest *payload.Manifest
	Has      string // a version in which the kind is there; "" if it is in none
	InOurs   bool   // it is the payload that has that version
	Err      error  // why nobody knows whether it is served; nil if it surely is not
}

// A Severity says what a finding does to an update.
type Severity string

// The severities.
const (
	Blocks Severity = "Blocks" // unless it is forced, the update does not begin
	Warns  Severity = "Warns"  // it goes on
)

// A Finding is something that speaks against an update.
type Finding struct {
	Check    string     `json:"check"` // the name of the one that found it
	Severity Severity   `json:"severity"`
	Message  string     `json:"message"`         // what it is, in one line
	Since    *time.Time `json:"since,omitempty"` // when it began, if that is known
	Lifts    string     `json:"lifts"`           // who or what makes it go away
	Object   *kinds.ID  `json:"object,omitempty"`
	Objects  []kinds.ID `json:"objects,omitempty"` // all that it is about, if there are several
	File     string     `json:"file,omitempty"`
}

// String is the finding in one line.
func (f Finding) String() string { return f.Check + ": " + f.Message + "; lifted by " + f.Lifts }

// Text is the finding for people: what it does and is, and below it who lifts it.
func (f Finding) Text() string {
	word := "warning of"
	if f.Severity == Blocks {
		word = "blocked by"
	}
	text := fmt.Sprintf("%s %s: %s", word, f.Check, f.Message)
	if f.Lifts != "" {
		text += "\n  lifted by " + f.Lifts
	}
	return text
}

// A Check is one thing to look at.
type Check struct {
	Name  string // CamelCase: what findings and records call it
	Short string // what it finds
	Judge func(*Facts) []Finding
}

// The names of the checks.
const (
	ApplyRunning      = "ApplyRunning"
	RecordElsewhere   = "RecordElsewhere"
	OlderVersion      = "OlderVersion"
	ChangedContent    = "ChangedContent"
	GiantHop          = "GiantHop"
	PendingDelete     = "PendingDelete"
	TerminatingObject = "TerminatingObject"
	ForeignObject     = "ForeignObject"
	UnservedKinds     = "UnservedKinds"
	NoNamespace       = "NoNamespace"
	MissingRights     = "MissingRights"
	StaleTombstone    = "StaleTombstone"
)

// Checks are all there are, in the order in which they are shown.
func Checks() []Check {
	return []Check{
		{ApplyRunning, "somebody else is applying the release", judgeLock},
		{RecordElsewhere, "the record of the release is in another namespace", judgeElsewhere},
		{OlderVersion, "the version is older than the one the cluster has", judgeAge},
		{ChangedContent, "the version is the one that was applied last, and its files are others", judgeContent},
		{GiantHop, "the update skips a minor version, or a major one", judgeHop},
		{PendingDelete, "a delete that was asked for is not done", judgeDeletes},
		{TerminatingObject, "an object that the update needs is being deleted", judgeTerminating},
		{ForeignObject, "an object is of another release", judgeClaims},
		{UnservedKinds, "the cluster does not serve the kind of a manifest", judgeKinds},
		{NoNamespace, "a manifest of a namespaced kind names no namespace", judgeNamespaces},
		{MissingRights, "a right that the update needs is missing", judgeRights},
		{StaleTombstone, "a tombstone has done its work in an earlier minor version", judgeTombstones},
	}
}

// Evaluate is what all checks find.
func Evaluate(f *Facts) []Finding {
	var all []Finding
	for _, check := range Checks() {
		for _, finding := range check.Judge(f) {
			finding.Check = check.Name
			all = append(all, finding)
		}
	}
	return all
}

// Blocking are those findings that stop an update.
func Blocking(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != Blocks })
}

// Names are those of the checks that found something, each once: what to write down of
// findings that were overridden.
func Names(findings []Finding) []string {
	var names []string
	for _, finding := range findings {
		if !slices.Contains(names, finding.Check) {
			names = append(names, finding.Check)
		}
	}
	return names
}

// Refuse is the error of an update that is stopped, with a line for each finding that
// blocks; nil if none does.
func Refuse(findings []Finding) error {
	var lines []string
	for _, finding := range Blocking(findings) {
		lines = append(lines, finding.String())
	}
	if len(lines) == 0 {
		return nil
	}
	return &reason.Error{Reason: ReasonFailed, Message: strings.Join(lines, "\n")}
}

func blocks(lifts, format string, args ...any) Finding {
	return Finding{Severity: Blocks, Message: fmt.Sprintf(format, args...), Lifts: lifts}
}

func warns(lifts, format string, args ...any) Finding {
	return Finding{Severity: Warns, Message: fmt.Sprintf(format, args...), Lifts: lifts}
}

// at adds the manifests that a finding is about.
func (f Finding) at(manifests ...*payload.Manifest) Finding {
	f.File = manifests[0].Path
	return f.about(ids(manifests)...)
}

// about adds the objects that a finding is about.
func (f Finding) about(objects ...kinds.ID) Finding {
	f.Object = &objects[0]
	if len(objects) > 1 {
		f.Objects = objects
	}
	return f
}

// since adds when it began.
func (f Finding) since(when time.Time) Finding {
	if !when.IsZero() {
		f.Since = &when
	}
	return f
}
