// Package precondition is the gate of an update: before anything is written, it checks whether the update may begin.
// Gather reads the facts from the cluster, once. A list of small checks judges them, without requests and clocks.
//
// It applies nothing and overrides nothing: the caller decides whether to override findings that block, and records
// which were overridden.
//
// Refuse returns the error for findings that block. Start with Gather and Evaluate.
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

// ReasonFailed is the reason of a refused update, as the cluster-version operator names it.
const ReasonFailed = "UpgradePreconditionCheckFailed"

// Facts are the input of the checks, as Gather has read them.
type Facts struct {
	Now              time.Time           // server time
	Payload          *payload.Payload    // payload of the requested update
	Record           *record.Record      // record of the release
	Held             *lock.Holder        // holder that applies the release; nil if none does
	Deletes          []Delete            // requested deletes that are not known to be done
	TombstoneObjects []kinds.ID          // existing objects of tombstones
	Claims           []Claim             // manifests whose objects other releases own
	WithoutNamespace []*payload.Manifest // manifests of namespaced kinds, without a namespace
	// the namespace that such objects get, if it neither exists nor is created; "" otherwise
	MissingNamespace string
	Unserved         []UnservedManifest // manifests whose kind is not served, or not known to be
	Stored           []StoredVersion    // versions that definitions lack, and in which objects may be stored

	Data       []DataLoss           // manifests that delete objects with data
	Narrowed   []NarrowedDefinition // definitions that allow less than those on the cluster
	NotReady   []Obstacle           // Nodes that are not ready, if the release has pods
	Shortages  []Obstacle           // workloads for whose pods the Nodes lack room
	Budgets    []Obstacle           // budgets that block the drains of an update
	Deprecated []DeprecatedAPI      // APIs in use that will not be served any more

	Terminating []TerminatingNeed // objects that the update needs, and that are being deleted
	Gates       []AdminGate       // unacknowledged gates that hold back the update
	GatesErr    error             // the error of reading gates
	Elsewhere   []string          // namespaces that have a record of the release, if the requested one has none
	Writers     []string          // other accounts that may write the record

	Rollback *record.Rollback    // nil if the update is none
	Deleted  []*payload.Manifest // manifests of a rollback whose objects newer versions have deleted

	User      string  // our name, if rights are missing and the server returns it
	Missing   []Right // rights that we lack
	RightsErr error   // the error of reviewing rights
}

// A Delete is a delete that a release has requested, and its state.
type Delete struct {
	record.Tombstone
	Seen tombstone.Observation
}

// WasSent reports whether the delete is known to be sent, by Runlevel or by another client of a terminating object.
// Before its turn in an update, a delete is only recorded.
func (d Delete) WasSent() bool { return d.Sent || d.Seen.State != tombstone.Present }

// Describe returns the state for people, in one line.
func (d Delete) Describe(now time.Time) string {
	if d.WasSent() {
		return d.Seen.Describe(now)
	}
	return notSent
}

// DescribeSince is like Describe, with a time instead of an age. The text changes only with the state, since findings
// of the gate become conditions.
func (d Delete) DescribeSince() string {
	if d.WasSent() {
		return d.Seen.DescribeSince()
	}
	return notSent
}

const notSent = "present, and its delete has not been requested yet"

// A Claim is a manifest whose object another release has.
type Claim struct {
	Manifest *payload.Manifest
	Release  string // the other release
}

// A Right is a right that the update needs.
type Right struct {
	Verb      string
	Resource  schema.GroupResource
	Namespace string // "" for cluster-scoped resources
	// Manifests need the right; empty if the record or the lock needs it.
	Manifests []*payload.Manifest
	// IsForHooks is true if the lifecycle hooks of the manifests need the right, not their objects.
	IsForHooks bool
}

// An UnservedManifest uses a kind and version that are neither served nor defined by the payload.
type UnservedManifest struct {
	Manifest *payload.Manifest
	Has      string // a version in which the kind is served; "" if there is none
	InOurs   bool   // the payload defines that version
	Err      error  // why it is not known whether it is served; nil if it is not served
}

// A Severity is the effect of a finding on an update.
type Severity string

// The severities.
const (
	Blocks Severity = "Blocks" // the update does not begin, unless forced
	Warns  Severity = "Warns"  // the update begins
	Fails  Severity = "Fails"  // the update begins, and fails at an object; only previews find this
)

// A Finding is a reason against an update.
type Finding struct {
	Check      string     `json:"check"` // the name of the check
	Of         string     `json:"-"`     // the subject, which is the second part of the finding's name; optional
	Severity   Severity   `json:"severity"`
	Message    string     `json:"message"`         // a single line
	Since      *time.Time `json:"since,omitempty"` // nil if unknown
	Resolution string     `json:"resolution"`      // action that resolves the finding
	Object     *kinds.ID  `json:"object,omitempty"`
	Objects    []kinds.ID `json:"objects,omitempty"` // all objects, if there are several
	File       string     `json:"file,omitempty"`
}

// Name returns the name of the finding in conditions and records.
func (f Finding) Name() string {
	if f.Of == "" {
		return f.Check
	}
	return f.Check + "-" + f.Of
}

// String returns the finding in one line.
func (f Finding) String() string {
	return f.Name() + ": " + f.Message + "; resolve by: " + f.Resolution
}

// Text returns the finding for people: its severity and message, and in a second line its resolution.
func (f Finding) Text() string {
	word := map[Severity]string{Blocks: "blocked by", Warns: "warning of", Fails: "fails with"}[f.Severity]
	text := fmt.Sprintf("%s %s: %s", word, f.Name(), f.Message)
	if f.Resolution != "" {
		text += "\n  resolve by: " + f.Resolution
	}
	return text
}

// A Check finds one kind of reason against an update.
type Check struct {
	Name  string // CamelCase name, as in findings and records
	Short string // describes its findings
	Judge func(*Facts) []Finding
}

// The names of the checks.
const (
	ApplyRunning        = "ApplyRunning"
	BeingUninstalled    = "BeingUninstalled"
	RecordElsewhere     = "RecordElsewhere"
	SharedRecord        = "SharedRecord"
	OlderVersion        = "OlderVersion"
	ChangedContent      = "ChangedContent"
	GiantHop            = "GiantHop"
	AdminAck            = "AdminAck"
	PendingDelete       = "PendingDelete"
	TerminatingObject   = "TerminatingObject"
	ForeignObject       = "ForeignObject"
	UnservedKinds       = "UnservedKinds"
	StoredVersions      = "StoredVersions"
	NarrowedDefinitions = "NarrowedDefinition"
	NoNamespace         = "NoNamespace"
	MissingNamespace    = "MissingNamespace"
	MissingRights       = "MissingRights"
	DeletedInUse        = "DeletedInUse"
	DeletedData         = "DeletedData"
	StaleTombstone      = "StaleTombstone"
	LostData            = "LostData"
	HookEffects         = "HookEffects"
	NodeNotReady        = "NodeNotReady"
	NodeCapacity        = "NodeCapacity"
	DisruptionBudget    = "PodDisruptionBudget"
	DeprecatedAPIs      = "DeprecatedAPI"
)

// Checks returns all checks, in the order in which their findings are shown.
func Checks() []Check {
	return []Check{
		{ApplyRunning, "another process is applying the release", judgeLock},
		{BeingUninstalled, "an uninstall of the release was begun, and has not ended", judgeUninstall},
		{RecordElsewhere, "the record of the release is in another namespace", judgeElsewhere},
		{SharedRecord, "other accounts may write the record of the release", judgeShared},
		{OlderVersion, "the version is older than the one the cluster has", judgeAge},
		{ChangedContent, "the version was applied last with other files", judgeContent},
		{GiantHop, "the update skips a minor version, or a major one", judgeHop},
		{AdminAck, "an administrator has not acknowledged what the next minor version changes", judgeAcks},
		{PendingDelete, "a requested delete is still pending", judgeDeletes},
		{TerminatingObject, "an object that the update needs is being deleted", judgeTerminating},
		{ForeignObject, "an object is of another release", judgeClaims},
		{UnservedKinds, "the cluster does not serve the kind of a manifest", judgeKinds},
		{StoredVersions, "a definition lacks a version in which objects may be stored", judgeStored},
		{NarrowedDefinitions, "a definition allows less than the one on the cluster", judgeNarrowed},
		{NoNamespace, "a manifest of a namespaced kind names no namespace", judgeNamespaces},
		{MissingNamespace, "the namespace of objects without one of their own does not exist", judgeMissingNamespace},
		{MissingRights, "a right that the update needs is missing", judgeRights},
		{DeletedInUse, "a tombstone deletes an object that another manifest refers to", judgeUses},
		{DeletedData, "a tombstone, or fewer replicas, delete data on the cluster", judgeData},
		{StaleTombstone, "a tombstone has done its work in an earlier minor version", judgeTombstones},
		{LostData, "a rollback recreates an object that a newer version has deleted", judgeLost},
		{HookEffects, "a lifecycle hook has run since the version of a rollback", judgeHookEffects},
		{NodeNotReady, "a Node is not ready", func(f *Facts) []Finding { return warnOf(f.NotReady) }},
		{NodeCapacity, "the Nodes lack room for new pods of the release",
			func(f *Facts) []Finding { return warnOf(f.Shortages) }},
		{DisruptionBudget, "a PodDisruptionBudget blocks the drain of a Node",
			func(f *Facts) []Finding { return warnOf(f.Budgets) }},
		{DeprecatedAPIs, "clients use an API version that will not be served any more", judgeDeprecated},
	}
}

// Evaluate returns the findings of all checks.
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

// Blocking returns the findings that stop an update.
func Blocking(findings []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Severity != Blocks })
}

// CheckNames returns the names of the checks of findings, each once, for the record of overridden checks.
func CheckNames(findings []Finding) []string {
	var names []string
	for _, finding := range findings {
		if name := finding.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Refuse returns an error with a line for each finding that blocks the update; nil if there is none.
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

func blocks(resolution, format string, args ...any) Finding {
	return Finding{Severity: Blocks, Message: fmt.Sprintf(format, args...), Resolution: resolution}
}

func warns(resolution, format string, args ...any) Finding {
	return Finding{Severity: Warns, Message: fmt.Sprintf(format, args...), Resolution: resolution}
}

// withFile adds the manifests of a finding.
func (f Finding) withFile(manifests ...*payload.Manifest) Finding {
	f.File = manifests[0].Path
	return f.withObjects(ids(manifests)...)
}

// withObjects adds the objects of a finding.
func (f Finding) withObjects(objects ...kinds.ID) Finding {
	f.Object = &objects[0]
	if len(objects) > 1 {
		f.Objects = objects
	}
	return f
}

// withSince adds the begin of the state that a finding reports.
func (f Finding) withSince(when time.Time) Finding {
	if !when.IsZero() {
		f.Since = &when
	}
	return f
}
