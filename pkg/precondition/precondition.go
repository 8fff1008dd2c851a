// Package precondition is the gate of an update: before anything is written, it finds what speaks against the update.
// Gather asks the cluster for the facts, once. A list of small checks judges them, without requests and clocks.
//
// It applies nothing and overrides nothing: the caller decides what becomes of findings that block, and records
// which were overridden.
//
// Gather and Evaluate are the calls to start from; Refuse makes an error of what blocks.
package precondition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// ReasonFailed is the reason of an update that the gate stops, as the cluster-version operator calls it.
const ReasonFailed = "UpgradePreconditionCheckFailed"

// Facts are what the checks judge, as Gather has found it.
type Facts struct {
	Now              time.Time           // by the server's clock
	Payload          *payload.Payload    // what is asked for
	Record           *record.Record      // of its release
	Held             *lock.Holder        // an apply of the release that runs; nil if none does
	Deletes          []Delete            // that were asked for, and were not seen done
	TombstoneObjects []kinds.ID          // objects of tombstones that a release still has
	Claims           []Claim             // on objects that other releases have
	WithoutNamespace []*payload.Manifest // of namespaced kinds, without a namespace
	Unserved         []UnservedManifest  // manifests whose kind is not there, or not known to be

	Terminating []Terminating // objects that the update needs, and that are being deleted
	Gates       []AdminGate   // that are not acknowledged, if they hold back the update
	GatesErr    error         // why gates could not be read
	Elsewhere   []string      // namespaces that have a record of the release, if the one that was asked for has none

	User      string  // who we are, if rights are missing and the server says it
	Missing   []Right // rights that we lack
	RightsErr error   // why rights could not be asked for
}

// A Delete is a delete that a release has requested, and its state.
type Delete struct {
	record.Tombstone
	Seen tombstone.Observation
}

// WasSent returns whether the delete was sent, as far as is known: a terminating object counts, whatever requested its
// delete. LastSeconds its turn in an update, a delete is only recorded.
func (d Delete) WasSent() bool { return d.Sent || d.Seen.State != tombstone.Present }

// Describe returns the state for people, in one line.
func (d Delete) Describe(now time.Time) string {
	if d.WasSent() {
		return d.Seen.Describe(now)
	}
	return notSent
}

// DescribeSince is like Describe, with a time instead of an age: the text is the same as long as nothing changes, which findings of
// the gate need, since they become conditions.
func (d Delete) DescribeSince() string {
	if d.WasSent() {
		return d.Seen.DescribeSince()
	}
	return notSent
}

const notSent = "still there, and its delete was not asked for yet"

// A Claim is a manifest whose object is one of another release.
type Claim struct {
	Manifest *payload.Manifest
	Release  string // the other
}

// A Right is a right that the update needs.
type Right struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string // "" for what is in none
	// Manifests need it. There are none for what the record and the lock need.
	Manifests []*payload.Manifest
	// IsForHooks says that it is for the lifecycle hooks of the manifests, not for their objects.
	IsForHooks bool
}

// An UnservedManifest is one whose kind and version are neither served nor defined by the payload.
type UnservedManifest struct {
	Manifest *payload.Manifest
	Has      string // a version in which the kind is there; "" if it is in none
	InOurs   bool   // it is the payload that has that version
	Err      error  // why it is not known whether it is served; nil if it surely is not
}

// A GateSeverity is what a finding does to an update.
type GateSeverity string

// The severities.
const (
	Blocks GateSeverity = "Blocks" // unless it is forced, the update does not begin
	Warns  GateSeverity = "Warns"  // it goes on
	Fails  GateSeverity = "Fails"  // it begins, and fails at an object; only previews find this
)

// A CheckFinding is something that speaks against an update.
type CheckFinding struct {
	Check      string       `json:"check"` // the name of the one that found it
	Severity   GateSeverity `json:"severity"`
	Message    string       `json:"message"`         // what it is, in one line
	Since      *time.Time   `json:"since,omitempty"` // when it began, if that is known
	Resolution string       `json:"resolution"`      // who or what makes it go away
	Object     *kinds.ID    `json:"object,omitempty"`
	Objects    []kinds.ID   `json:"objects,omitempty"` // all that it is about, if there are several
	File       string       `json:"file,omitempty"`
}

// String returns the finding in one line.
func (f CheckFinding) String() string {
	return f.Check + ": " + f.Message + "; lifted by " + f.Resolution
}

// Text returns the finding for people: what it does and is, and in a second line what lifts it.
func (f CheckFinding) Text() string {
	word := map[GateSeverity]string{Blocks: "blocked by", Warns: "warning of", Fails: "fails with"}[f.Severity]
	text := fmt.Sprintf("%s %s: %s", word, f.Check, f.Message)
	if f.Resolution != "" {
		text += "\n  lifted by " + f.Resolution
	}
	return text
}

// A Check finds one kind of reason against an update.
type Check struct {
	Name  string // CamelCase: what findings and records call it
	Short string // what it finds
	Judge func(*Facts) []CheckFinding
}

// The names of the checks.
const (
	ApplyRunning      = "ApplyRunning"
	RecordElsewhere   = "RecordElsewhere"
	OlderVersion      = "OlderVersion"
	ChangedContent    = "ChangedContent"
	GiantHop          = "GiantHop"
	AdminAck          = "AdminAck"
	PendingDelete     = "PendingDelete"
	TerminatingObject = "TerminatingObject"
	ForeignObject     = "ForeignObject"
	UnservedKinds     = "UnservedKinds"
	NoNamespace       = "NoNamespace"
	MissingRights     = "MissingRights"
	DeletedInUse      = "DeletedInUse"
	StaleTombstone    = "StaleTombstone"
)

// Checks returns all checks, in the order in which their findings are shown.
func Checks() []Check {
	return []Check{
		{ApplyRunning, "another process is applying the release", judgeLock},
		{RecordElsewhere, "the record of the release is in another namespace", judgeElsewhere},
		{OlderVersion, "the version is older than the one the cluster has", judgeAge},
		{ChangedContent, "the version was applied last with other files", judgeContent},
		{GiantHop, "the update skips a minor version, or a major one", judgeHop},
		{AdminAck, "an administrator has not acknowledged what the next minor version changes", judgeAcks},
		{PendingDelete, "a requested delete is still pending", judgeDeletes},
		{TerminatingObject, "an object that the update needs is being deleted", judgeTerminating},
		{ForeignObject, "an object is of another release", judgeClaims},
		{UnservedKinds, "the cluster does not serve the kind of a manifest", judgeKinds},
		{NoNamespace, "a manifest of a namespaced kind names no namespace", judgeNamespaces},
		{MissingRights, "a right that the update needs is missing", judgeRights},
		{DeletedInUse, "a tombstone deletes an object that another manifest refers to", judgeUses},
		{StaleTombstone, "a tombstone has done its work in an earlier minor version", judgeTombstones},
	}
}

// Evaluate returns what all checks find.
func Evaluate(f *Facts) []CheckFinding {
	var all []CheckFinding
	for _, check := range Checks() {
		for _, finding := range check.Judge(f) {
			finding.Check = check.Name
			all = append(all, finding)
		}
	}
	return all
}

// Blocking returns those findings that stop an update.
func Blocking(findings []CheckFinding) []CheckFinding {
	return slices.DeleteFunc(slices.Clone(findings), func(f CheckFinding) bool { return f.Severity != Blocks })
}

// CheckNames returns the names of the checks that found something, each once, to record which were overridden.
func CheckNames(findings []CheckFinding) []string {
	var names []string
	for _, finding := range findings {
		if !slices.Contains(names, finding.Check) {
			names = append(names, finding.Check)
		}
	}
	return names
}

// Refuse returns the error of an update that is stopped, with a line for each finding that blocks; nil if none does.
func Refuse(findings []CheckFinding) error {
	var lines []string
	for _, finding := range Blocking(findings) {
		lines = append(lines, finding.String())
	}
	if len(lines) == 0 {
		return nil
	}
	return &reason.Error{Reason: ReasonFailed, Message: strings.Join(lines, "\n")}
}

func blocks(lifts, format string, args ...any) CheckFinding {
	return CheckFinding{Severity: Blocks, Message: fmt.Sprintf(format, args...), Resolution: lifts}
}

func warns(lifts, format string, args ...any) CheckFinding {
	return CheckFinding{Severity: Warns, Message: fmt.Sprintf(format, args...), Resolution: lifts}
}

// at adds the manifests that a finding is about.
func (f CheckFinding) at(manifests ...*payload.Manifest) CheckFinding {
	f.File = manifests[0].Path
	return f.about(ids(manifests)...)
}

// about adds the objects that a finding is about.
func (f CheckFinding) about(objects ...kinds.ID) CheckFinding {
	f.Object = &objects[0]
	if len(objects) > 1 {
		f.Objects = objects
	}
	return f
}

// since adds when it began.
func (f CheckFinding) since(when time.Time) CheckFinding {
	if !when.IsZero() {
		f.Since = &when
	}
	return f
}
