package state

import (
	"cmp"
	"fmt"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A Status is the status of a release on a cluster. It is the output of -o json.
type Status struct {
	Time    time.Time          `json:"time"` // server time
	Release string             `json:"release"`
	Done    bool               `json:"done"`            // the release is complete, and nothing is wrong
	State   record.UpdateState `json:"state,omitempty"` // state of the newest version; empty if none was applied
	// mode of the current or last apply: install, update or reconcile
	Mode     string             `json:"mode,omitempty"`
	Lost     *UnrecordedRelease `json:"lost,omitempty"`     // it has objects on the cluster, and no record
	Previous string             `json:"previous,omitempty"` // the version that was completed before
	Version  string             `json:"version,omitempty"`
	// percentage of its objects that are applied and ready; absent if unknown
	Percent *int `json:"percent,omitempty"`

	// the process that applies it, or the time of the last apply
	Messages    []why.Message      `json:"messages"`
	Progress    *progress.Progress `json:"progress,omitempty"`    // progress of an incomplete apply, as last reported
	LastSeconds float64            `json:"lastSeconds,omitempty"` // how many seconds the last apply in this mode took
	Objects     []*why.Answer      `json:"objects,omitempty"`     // objects that are not ready, the most severe first
	Missing     int                `json:"missing,omitempty"`     // objects that were deleted since it was complete
	Deletes     []PendingDelete    `json:"deletes,omitempty"`
	// gates that block the next minor version, or the requested one
	Gates     []Gate            `json:"gates,omitempty"`
	Lock      *LockStatus       `json:"lock,omitempty"`      // absent while the lock is free
	NotKept   *why.NotKept      `json:"notKept,omitempty"`   // why no process keeps it in place, though one should
	Uninstall *record.Uninstall `json:"uninstall,omitempty"` // begun and not ended: some objects were deleted
	Repairs   *record.Repairs   `json:"repairs,omitempty"`
	Hooks     []why.HookStatus  `json:"hooks,omitempty"` // lifecycle hooks of Deployments that have not succeeded
	// MissingObjects are the objects that are missing, if the cluster has the files that were applied.
	MissingObjects []kinds.ID `json:"missingObjects,omitempty"`

	ClusterVersion *VersionStatus `json:"clusterVersion,omitempty"`
	// ClusterOperators that are unavailable, degraded, progressing or not upgradeable
	Operators []OperatorStatus     `json:"operators,omitempty"`
	Events    []Event              `json:"events,omitempty"`  // the latest on the ClusterVersion, the newest first
	History   *record.HistoryEntry `json:"history,omitempty"` // the newest
	Others    []string             `json:"others,omitempty"`  // releases on the same cluster
	Unknown   []string             `json:"unknown,omitempty"` // resources that could not be read
	// why the cluster does not respond: the other fields are from the last read
	Unreachable string `json:"unreachable,omitempty"`

	known    *record.Record       // nil without a record
	answer   *why.ReleaseAnswer   // nil without a record
	isUnread bool                 // whether there is a record could not be read
	live     *inventory.Inventory // nil without a record, and if objects could not be listed
}

// Record returns the record of the release; nil if there is none, or if it can't be read. It must not be changed.
func (s *Status) Record() *record.Record { return s.known }

// IsUnread reports whether the record could not be read, so that nothing is known about the release. The reason is the
// first unknown fact.
func (s *Status) IsUnread() bool { return s.isUnread }

// A Gate is a reason why an update is blocked.
type Gate struct {
	Reason    string     `json:"reason"`
	Message   string     `json:"message"`
	Since     *time.Time `json:"since,omitempty"`
	Requested bool       `json:"requested,omitempty"` // it blocks the requested version, not every next minor version
}

// A LockStatus is the holder of the lock of a release.
type LockStatus struct {
	Holder   string    `json:"holder"`
	Since    time.Time `json:"since"`
	Watching bool      `json:"watching"` // the holder keeps the release in place
	Expired  bool      `json:"expired"`  // it no longer renews the lock
}

// A VersionStatus is the status of the ClusterVersion.
type VersionStatus struct {
	Version string `json:"version,omitempty"` // version that the operator applies or has applied
	Image   string `json:"image,omitempty"`
	// the version or image of spec.desiredUpdate, if it differs from the applied release
	Requested  string      `json:"requested,omitempty"`
	Conditions []Condition `json:"conditions"`
	Updates    []Update    `json:"updates,omitempty"` // updates that the update service offers
}

// An Update is an update that a ClusterVersion lists.
type Update struct {
	Version     string `json:"version"`
	Image       string `json:"image"`
	Recommended string `json:"recommended"` // True, False or Unknown
	Reason      string `json:"reason,omitempty"`
}

// A Condition is a condition of a ClusterVersion or a ClusterOperator.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// An OperatorStatus is a ClusterOperator. In a Status, it has only the conditions that are not healthy.
type OperatorStatus struct {
	Name       string      `json:"name"`
	Version    string      `json:"version,omitempty"`
	Conditions []Condition `json:"conditions"`

	release string // the label of its release; "" if it has none
}

// An Event is an event of Kubernetes.
type Event struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Warning bool      `json:"warning,omitempty"`
}

// failedTests returns the tests of the newest version that have failed.
func (s *Status) failedTests() []record.ObjectFailure {
	if s.History == nil {
		return nil
	}
	return s.History.FailedTests
}

// pending returns the deletes that hold back the next minor version.
func (s *Status) pending() []PendingDelete {
	var pending []PendingDelete
	for _, item := range s.Deletes {
		if item.State != tombstone.Reappeared && (item.State != tombstone.Present || item.UID != "") {
			pending = append(pending, item)
		}
	}
	return pending
}

// Title returns the version of the release and its progress in a line.
func (s *Status) Title() string {
	title := "release " + s.Release
	switch {
	case s.Lost != nil:
		title = "release " + s.Lost.Title()
	case s.Uninstall != nil:
		title += named(s.Version) + ": " + s.Uninstall.String()
	case s.State == "":
		title += ": not applied"
	case s.State == record.Completed && s.Progress != nil && s.Lock != nil && !s.Lock.Expired:
		title += named(s.Version) + ": completed, re-applying" + s.percentText()
	case s.State == record.Completed && s.Progress != nil:
		title += named(s.Version) + ": completed, last re-apply not finished" + s.percentText()
	case s.State == record.Completed && s.Done:
		title += s.versionText() + ": complete"
	case s.State == record.Completed && len(s.failedTests()) > 0 && len(s.Objects)+s.Missing == 0:
		title += s.versionText() + ": complete, and " + printable.Count(len(s.failedTests()), "test") + " failed"
	case s.State == record.Completed && s.NotKept != nil && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete, and not kept in place"
	case s.State == record.Completed && s.requestedVersion() != "":
		title += s.versionText() + ": complete, and another version is requested"
	case s.State == record.Completed && len(s.Objects)+s.Missing == 0 && s.isHealthy():
		title += s.versionText() + ": complete (some checks unavailable)"
	case s.State == record.Completed:
		title += s.versionText() + ": complete, with problems"
	default:
		title += ": " + cmp.Or(s.Mode, "update") + s.versionRange() + s.percentText()
	}
	return printable.Line(title)
}

// requestedVersion returns the version or image that the ClusterVersion requests, if it is another one.
func (s *Status) requestedVersion() string {
	if s.ClusterVersion == nil {
		return ""
	}
	return s.ClusterVersion.Requested
}

// versionText returns the version, and the previous one.
func (s *Status) versionText() string {
	if s.Version == "" || s.Previous == "" || s.Previous == s.Version {
		return named(s.Version)
	}
	return " " + s.Version + ", after " + s.Previous
}

// versionRange returns the versions that an update leads from and to.
func (s *Status) versionRange() string {
	switch {
	case s.Version == "":
		return ""
	case s.Mode == string(graph.Install):
		return " of " + s.Version
	case s.Previous == "" || s.Previous == s.Version:
		return " to " + s.Version
	default:
		return " from " + s.Previous + " to " + s.Version
	}
}

// percentText returns how much is done.
func (s *Status) percentText() string {
	if s.Percent == nil {
		return ", not complete"
	}
	return fmt.Sprintf(", %d%% done", *s.Percent)
}
