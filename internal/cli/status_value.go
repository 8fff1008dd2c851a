package cli

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/progress"
	"github.com/runlevel/runlevel/internal/session/why"
)

// A releaseStatus says how a release of a cluster stands. It is what -o json prints.
type releaseStatus struct {
	Time     time.Time          `json:"time"` // by the cluster's clock
	Release  string             `json:"release"`
	Done     bool               `json:"done"`               // it is complete, and nothing is wrong
	State    record.UpdateState `json:"state,omitempty"`    // of its newest version; empty if none was applied
	Mode     string             `json:"mode,omitempty"`     // of the apply that runs or was the last: install, update or reconcile
	Lost     *lostRelease       `json:"lost,omitempty"`     // it has objects on the cluster, and no record
	Previous string             `json:"previous,omitempty"` // the version that was completed before
	Version  string             `json:"version,omitempty"`
	Percent  *int               `json:"percent,omitempty"` // of its objects that are applied and ready; absent if it is not known

	Messages    []why.Message      `json:"messages"`              // who applies it, or when it was last applied
	Progress    *progress.Progress `json:"progress,omitempty"`    // of an apply that is not done, as it was told last
	LastSeconds float64            `json:"lastSeconds,omitempty"` // how many seconds the last apply in this mode took
	Objects     []*why.Answer      `json:"objects,omitempty"`     // that are not as they are to be, the worst first
	Missing     int                `json:"missing,omitempty"`     // objects that were deleted since it was complete
	Deletes     []pendingDelete    `json:"deletes,omitempty"`
	Gates       []releaseGate      `json:"gates,omitempty"`   // what holds back the next minor version, or the one that is asked for
	Lock        *lockStatus        `json:"lock,omitempty"`    // absent while the lock is free
	NotKept     *why.NotKept       `json:"notKept,omitempty"` // why no process keeps it in place, if one is to
	Repairs     *record.Repairs    `json:"repairs,omitempty"`
	Hooks       []why.HookStatus   `json:"hooks,omitempty"` // lifecycle hooks of Deployments that have not simply succeeded

	ClusterVersion *versionStatus       `json:"clusterVersion,omitempty"`
	Operators      []operatorStatus     `json:"operators,omitempty"`   // ClusterOperators that are not well, progress, or are not upgradeable
	Events         []statusEvent        `json:"events,omitempty"`      // the latest on the ClusterVersion, the newest first
	History        *record.HistoryEntry `json:"history,omitempty"`     // the newest
	Others         []string             `json:"others,omitempty"`      // releases on the same cluster
	Unknown        []string             `json:"unknown,omitempty"`     // what could not be found out
	Unreachable    string               `json:"unreachable,omitempty"` // why the cluster does not answer now: the rest is what was known before
}

// A releaseGate is what holds back an update.
type releaseGate struct {
	Reason    string     `json:"reason"`
	Message   string     `json:"message"`
	Since     *time.Time `json:"since,omitempty"`
	Requested bool       `json:"requested,omitempty"` // it is about the version that is asked for, not about any next minor one
}

// A lockStatus is who holds the lock of a release.
type lockStatus struct {
	Holder   string    `json:"holder"`
	Since    time.Time `json:"since"`
	Watching bool      `json:"watching"` // the holder keeps the release in place
	Expired  bool      `json:"expired"`  // it gives no sign of life any more
}

// A versionStatus is what the ClusterVersion says.
type versionStatus struct {
	Version    string            `json:"version,omitempty"` // that its operator applies or has applied
	Image      string            `json:"image,omitempty"`
	Requested  string            `json:"requested,omitempty"` // the version or image of spec.desiredUpdate, if that is another one
	Conditions []statusCondition `json:"conditions"`
	Updates    []statusUpdate    `json:"updates,omitempty"` // that the update service offers
}

// A statusUpdate is an update that a ClusterVersion lists.
type statusUpdate struct {
	Version     string `json:"version"`
	Image       string `json:"image"`
	Recommended string `json:"recommended"` // True, False or Unknown
	Reason      string `json:"reason,omitempty"`
}

// A statusCondition is a condition of a ClusterVersion or a ClusterOperator.
type statusCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// An operatorStatus is a ClusterOperator, with the conditions that are not as they are when all is well.
type operatorStatus struct {
	Name       string            `json:"name"`
	Version    string            `json:"version,omitempty"`
	Conditions []statusCondition `json:"conditions"`
}

// A statusEvent is an event of Kubernetes.
type statusEvent struct {
	Time    time.Time `json:"time"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Warning bool      `json:"warning,omitempty"`
}

// pending returns the deletes that hold back the next minor version.
func (s *releaseStatus) pending() []pendingDelete {
	var pending []pendingDelete
	for _, item := range s.Deletes {
		if item.State != tombstone.Reappeared && (item.State != tombstone.Present || item.UID != "") {
			pending = append(pending, item)
		}
	}
	return pending
}

// passing is time that has passed, in the words of a sentence.
var passing = regexp.MustCompile(`\b(\d+[smhdy])+\b`)

// content returns what is the same as long as nothing but the time changes, of what a format shows.
func (s *releaseStatus) content(format output) string {
	timeless := *s
	timeless.Time = time.Time{}
	if s.Unreachable != "" { // which has the port of the connection that was tried
		timeless.Unreachable = "for one reason or another"
	}
	if s.Progress != nil {
		progress := *s.Progress
		progress.Now = time.Time{}
		timeless.Progress = &progress
	}
	if format == asText {
		timeless.Time = s.Time // by which ages are counted
		text := strings.Join(timeless.lines(statusWidth, statusLevels), "\n")
		return passing.ReplaceAllString(strings.ReplaceAll(text, s.Time.Format(time.RFC3339), ""), "")
	}
	text, _ := json.Marshal(timeless) // all these values can be written
	return string(passing.ReplaceAll(text, nil))
}
