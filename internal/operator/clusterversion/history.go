package clusterversion

import (
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/pkg/graph"
)

// mostHistory is how many entries a history has.
const mostHistory = 100

// setHistory brings the history up to the release that is applied. An unknown version or image is taken to be the
// same; a release without both has no entry. An entry is begun only when the record has the apply: an
// operator that dies before that has begun nothing, and the next one keeps the release before in place.
func (b *builder) setHistory(applied AppliedRelease) {
	release := b.next.Desired
	if release.Image == "" && release.Version == "" {
		return
	}
	if history := b.next.History; len(history) > 0 && history[0].Version == release.Version &&
		applied.Mode == graph.Reconcile && !strings.Contains(history[0].Image, "@") {
		history[0].Image = release.Image // the release was applied from a folder, and is adopted
	}
	if len(b.next.History) == 0 || !isOf(b.next.History[0], release) {
		if applied.Mode == "" {
			return
		}
		b.beginEntry()
	}
	newest := &b.next.History[0]
	if newest.Version == "" {
		newest.Version = release.Version
	}
	if newest.Image == "" {
		newest.Image = release.Image
	}
	if applied.wasCompleted() {
		newest.State = configv1.CompletedUpdate
		if newest.CompletionTime == nil {
			newest.CompletionTime = b.now.DeepCopy()
		}
	}
	newest.Verified = newest.Verified || applied.Verified
	if applied.Forced != "" { // which may not be known after a restart
		newest.AcceptedRisks = applied.Forced
	}
	b.next.History = pruned(b.next.History, mostHistory)
}

// beginEntry puts a new entry before the others. One that is not complete ends with it.
func (b *builder) beginEntry() {
	if len(b.next.History) > 0 && b.next.History[0].CompletionTime == nil {
		b.next.History[0].CompletionTime = b.now.DeepCopy()
	}
	entry := configv1.UpdateHistory{State: configv1.PartialUpdate, StartedTime: b.now}
	b.next.History = append([]configv1.UpdateHistory{entry}, b.next.History...)
}

// isOf reports whether an entry is about a release.
func isOf(entry configv1.UpdateHistory, release configv1.Release) bool {
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
