package clusterversion

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
)

// Next returns the status that follows from the previous one and from the observed state. Fields and conditions that it
// does not know stay as they are. It returns the previous status if nothing has changed.
//
// While no release is applied yet, a status with a history stays as it is: an operator that has just started knows less
// than its predecessor. If it can't read the release, Failing is True.
func Next(previous configv1.ClusterVersionStatus, seen Seen) configv1.ClusterVersionStatus {
	b := builder{next: *previous.DeepCopy(), seen: seen, now: metav1.NewTime(seen.Now.UTC().Truncate(time.Second))}
	b.next.ObservedGeneration = seen.Generation
	b.removeObsolete()
	b.setInvalid()
	b.setReleaseAccepted()
	switch {
	case seen.Applied != nil:
		b.setApplied(*seen.Applied)
	case len(b.next.History) == 0:
		b.setNothingApplied()
	case seen.Acceptance.Err != nil:
		b.setNotKept()
	}
	b.setUpdates()
	return b.next
}

// wasCompleted reports whether all of the release was applied and ready, now or before.
func (a AppliedRelease) wasCompleted() bool { return a.IsComplete || a.Mode == graph.Reconcile }

// A builder makes the next status out of a copy of the previous one.
type builder struct {
	next configv1.ClusterVersionStatus
	seen Seen
	now  metav1.Time // in whole seconds, as a status keeps it
}

// setApplied sets the fields and conditions of the release that is applied, or kept in place. Until its mode is known,
// a release that is completed in the history with the same manifests is kept in place: an operator that starts over
// does not begin an update. Until the record has the apply of another one, the desired release and the history stay as
// they were. A gate that refuses other settings of the release, such as feature gates, is a problem of it: the
// cluster-version operator would apply it and fail.
func (b *builder) setApplied(applied AppliedRelease) {
	applied.Release = b.complete(applied.Release)
	history := b.next.History
	isNewest := len(history) > 0 && isOf(history[0], applied.Release)
	if applied.Mode == "" && isNewest && isCompleted(history[0]) && applied.Hash == b.next.VersionHash {
		applied.Mode = graph.Reconcile
		b.seen.Applied = &applied
	}
	if applied.Mode != "" || isNewest || len(history) == 0 {
		b.next.Desired, b.next.Capabilities = applied.Release, *applied.Capabilities.DeepCopy()
		b.setHistory(applied)
		b.setImplicitCapabilities(applied.Implicit)
	}
	if applied.Mode != "" || len(history) == 0 {
		b.next.VersionHash = cmp.Or(applied.Hash, b.next.VersionHash)
	}
	if refused := b.seen.Acceptance; refused.Err != nil && refused.Phase == Judging &&
		refused.Release.Image == applied.Release.Image {
		applied.Problems = append(applied.Problems,
			ReleaseProblem{Wait: apply.Wait{For: refused.message(), Reason: reason.Of(refused.Err)}})
	}
	b.setAvailable(applied)
	b.setHealth(applied)
	b.setUpgradeable()
}

// setNothingApplied sets the status while there was never a release.
func (b *builder) setNothingApplied() {
	b.next.Desired = b.complete(b.seen.Acceptance.Release)
	b.setDefault(configv1.OperatorAvailable, configv1.ConditionFalse)
	b.setBeginning()
	b.setUpgradeable()
}

// setNotKept sets the status while the release of the history can't be read, and nothing keeps it in place.
func (b *builder) setNotKept() {
	failure := b.seen.Acceptance
	newest := b.next.History[0]
	if !isOf(newest, b.next.Desired) { // the command line has applied it
		b.next.Desired = b.complete(configv1.Release{Version: newest.Version, Image: newest.Image})
		b.setAvailable(AppliedRelease{IsComplete: isCompleted(newest)})
	}
	version, why := nameOf(b.next.Desired), string(failure.Phase)+"Failed"
	if isCompleted(newest) {
		b.set(configv1.OperatorProgressing, configv1.ConditionFalse, why,
			"Error while reconciling "+version+": it is not kept in place")
	} else {
		b.set(configv1.OperatorProgressing, configv1.ConditionTrue, why,
			"Unable to apply "+version+": it is not kept in place")
	}
	b.set(Failing, configv1.ConditionTrue, why,
		fmt.Sprintf("%s is not kept in place: %s", version, inLine(failure.Err.Error())))
}

// complete returns a release with the version, URL and channels that the previous status has for the same image.
func (b *builder) complete(release configv1.Release) configv1.Release {
	known := append([]configv1.Release{b.seen.Retrieved.current(), b.next.Desired}, b.next.AvailableUpdates...)
	for _, update := range b.next.ConditionalUpdates {
		known = append(known, update.Release)
	}
	full := *release.DeepCopy()
	for _, item := range known {
		if item.Image == "" || item.Image != release.Image {
			continue
		}
		if full.Version == "" {
			full.Version = item.Version
		}
		if full.URL == "" {
			full.URL = item.URL
		}
		if full.Channels == nil {
			full.Channels = item.Channels
		}
	}
	return full
}

// nameOf returns the name of a release in messages: its version, or its image while that is not known.
func nameOf(release configv1.Release) string {
	if release.Version != "" {
		return release.Version
	}
	return release.Image
}
