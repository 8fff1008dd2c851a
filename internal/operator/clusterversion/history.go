package clusterversion

import (
	"cmp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// maxHistory is the maximum number of entries in a history.
const maxHistory = 100

// setHistory updates the history to the current release. An unknown version or image counts as the same. A release
// without both has no entry. A new entry needs an apply in the record: if the operator is killed before, the update has
// not begun, and the next operator keeps the previous release in place.
func (b *builder) setHistory(applied AppliedRelease) {
	release := b.next.Desired
	if release.Image == "" && release.Version == "" {
		return
	}
	if history := b.next.History; len(history) > 0 && history[0].Version == release.Version &&
		applied.Mode == graph.Reconcile && !strings.Contains(history[0].Image, "@") {
		history[0].Image = release.Image // the release was applied from a folder
	}
	if len(b.next.History) == 0 || !isAbout(b.next.History[0], release) {
		if applied.Mode == "" {
			return
		}
		b.beginEntry()
	}
	newest := &b.next.History[0]
	newest.Version = cmp.Or(newest.Version, release.Version)
	newest.Image = cmp.Or(newest.Image, release.Image)
	if applied.wasCompleted() {
		newest.State = configv1.CompletedUpdate
		newest.CompletionTime = cmp.Or(newest.CompletionTime, b.now.DeepCopy())
	}
	newest.Verified = newest.Verified || applied.Verified
	newest.AcceptedRisks = cmp.Or(applied.Forced, newest.AcceptedRisks) // a restarted operator may not know them
	b.next.History = prune(b.next.History, maxHistory)
}

// beginEntry adds a new entry before the others. It ends an incomplete one.
func (b *builder) beginEntry() {
	if len(b.next.History) > 0 {
		newest := &b.next.History[0]
		newest.CompletionTime = cmp.Or(newest.CompletionTime, b.now.DeepCopy())
	}
	entry := configv1.UpdateHistory{State: configv1.PartialUpdate, StartedTime: b.now}
	b.next.History = append([]configv1.UpdateHistory{entry}, b.next.History...)
}

// isAbout reports whether an entry is about a release.
func isAbout(entry configv1.UpdateHistory, release configv1.Release) bool {
	hasSameImage, hasSameVersion := entry.Image == release.Image, entry.Version == release.Version
	switch {
	case hasSameImage && hasSameVersion:
		return true
	case hasSameImage && entry.Image != "":
		return entry.Version == "" || release.Version == ""
	case hasSameVersion && entry.Version != "":
		return entry.Image == "" || release.Image == ""
	default:
		return false
	}
}

// The weights of entries are those of the cluster-version operator. The entry with the least weight is removed.
const (
	weightRequired    = 1000.0 // the oldest entry, the newest five, and the newest completed one
	weightMinor       = 30.0   // the first or the last completed entry of a minor version
	weightMinorUpdate = 20.0   // a partial entry between two minor versions
	weightPatchUpdate = -20.0  // a partial entry between two patches
	weightPerNewer    = -1.01  // times the number of newer entries
	newestRequired    = 5
)

// prune returns a history with a maximum number of entries. The newest entry is the first one.
func prune(history []configv1.UpdateHistory, most int) []configv1.UpdateHistory {
	for len(history) > most {
		lightest, least := 0, 0.0
		for i := range history {
			if weight := weigh(history, i); i == 0 || weight < least {
				lightest, least = i, weight
			}
		}
		history = slices.Delete(history, lightest, lightest+1)
	}
	return history
}

func weigh(history []configv1.UpdateHistory, index int) float64 {
	entry, age := history[index], weightPerNewer*float64(index)
	if index < newestRequired || index == len(history)-1 || index == slices.IndexFunc(history, isCompleted) {
		return weightRequired + age
	}
	older := LastCompleted(history[index+1:])
	var newer *configv1.UpdateHistory
	for i := range history[:index] {
		if isCompleted(history[i]) {
			newer = &history[i]
		}
	}
	isBetween := older != nil && newer != nil
	switch {
	case isCompleted(entry) && !(isBetween && isSameMinor(*older, entry) && isSameMinor(entry, *newer)):
		return weightMinor + age
	case isCompleted(entry) || !isBetween:
		return age
	case !isSameMinor(*older, *newer):
		return weightMinorUpdate + age
	case older.Version != newer.Version:
		return weightPatchUpdate + age
	default:
		return age
	}
}

func isCompleted(entry configv1.UpdateHistory) bool { return entry.State == configv1.CompletedUpdate }

// LastCompleted returns the newest completed entry, or nil.
func LastCompleted(history []configv1.UpdateHistory) *configv1.UpdateHistory {
	if index := slices.IndexFunc(history, isCompleted); index >= 0 {
		return &history[index]
	}
	return nil
}

// isSameMinor reports whether two entries have the same major and minor version. An invalid version is the same as
// itself only.
func isSameMinor(a, b configv1.UpdateHistory) bool {
	return a.Version == b.Version || a.Version != "" && !precondition.IsMinor(a.Version, b.Version)
}
