package operator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A target is the release that the cluster is to have, with the settings that choose its objects.
type target struct {
	configv1.Release // without a version, that of the image is accepted
	Force            bool
	Overrides        []configv1.ComponentOverride
	Capabilities     *configv1.ClusterVersionCapabilitiesSpec
	Enabled          []configv1.ClusterVersionCapability // that stay enabled
	Injection        payload.Injection                   // settings of the cluster that manifests may ask for
	Features         Features                            // of the cluster
	// Before is the release that was begun last, if that is another one: it is kept in place until this one is
	// accepted.
	Before *target
	signed verification // of the image, if the release was begun before
	// Previous is the version that was applied before, by the history of the ClusterVersion.
	Previous string
	// unread is the release that was applied last, if the operator can't read its source, or must not trust the record
	// on it.
	unread *record.HistoryEntry
	// accepted is the digest of the files of the release when it was accepted, if it was begun last.
	accepted string
}

// at returns the acceptance of a target in a phase.
func (t *target) at(phase clusterversion.AcceptancePhase) clusterversion.Acceptance {
	return clusterversion.Acceptance{
		Release:      t.Release,
		Architecture: architecture,
		FeatureSet:   t.Features.Set,
		Phase:        phase,
	}
}

// isSame reports whether two targets are the same request. Enabled and Before do not matter.
func (t *target) isSame(other *target) bool {
	return t.Version == other.Version && t.Force == other.Force && t.hasSameObjects(other)
}

// hasSameObjects reports whether two targets have the same objects.
func (t *target) hasSameObjects(other *target) bool {
	return t.Image == other.Image && equality.Semantic.DeepEqual(t.Overrides, other.Overrides) &&
		equality.Semantic.DeepEqual(t.Capabilities, other.Capabilities) &&
		equality.Semantic.DeepEqual(t.Injection, other.Injection) &&
		equality.Semantic.DeepEqual(t.Features, other.Features)
}

// known has the inputs of choose beside the ClusterVersion.
type known struct {
	record      *record.Record
	current     *target // that is kept in place; nil before there is one
	own         string  // the release that the operator was started with
	isConfirmed bool    // the newest entry of the record is confirmed
}

// confirm sets whether the newest entry of the record is confirmed: its image is the operator's own, the current one,
// or one that the ClusterVersion names as begun last, or requests. An account that may only write ConfigMaps in the
// namespace of the record could otherwise have any image applied. Sources of the command line are never applied, so
// they need no confirmation. The ClusterVersion is as it was read, without what the record adds to its history.
func (k *known) confirm(v *configv1.ClusterVersion) {
	newest := k.record.Newest()
	k.isConfirmed = newest == nil || k.confirms(v, newest.Source)
}

// confirms reports whether an image is confirmed. Other sources are.
func (k *known) confirms(v *configv1.ClusterVersion, image string) bool {
	update := v.Spec.DesiredUpdate
	isCurrent := k.current != nil && k.current.Image == image
	isBegun := v.Status.Desired.Image == image || len(v.Status.History) > 0 && v.Status.History[0].Image == image
	isRequested := update != nil && (update.Image == image || update.Image == "" && imageOf(v, update.Version) == image)
	return !isByDigest(image) || image == k.own || isCurrent || isBegun || isRequested
}

// recordedImage returns the image of an entry of the record; "" if the release was applied from a folder or an archive,
// and if only the record has the image: an image in the history can be requested by its version.
func (k *known) recordedImage(v *configv1.ClusterVersion, entry record.HistoryEntry) string {
	image := imageIn(entry)
	isInHistory := slices.ContainsFunc(v.Status.History, func(h configv1.UpdateHistory) bool {
		return h.Image == image
	})
	if !isInHistory && !k.confirms(v, image) {
		return ""
	}
	return image
}

// choose returns the target of a ClusterVersion, and the errors in its spec. Without an update, that is the
// release that is kept in place, or was begun last, or the operator's own one if that is new.
func choose(v *configv1.ClusterVersion, k known) (*target, []string) {
	release, unread := k.begun(v)
	begun := &target{
		Release: release, unread: unread, Overrides: unmanaged(v.Spec.Overrides), Capabilities: v.Spec.Capabilities,
		Enabled: k.enabled(v),
	}
	begun.signed = recorded(v, k.record, begun.Image)
	if v.Status.Desired.Image == begun.Image {
		begun.accepted = v.Status.VersionHash
	}
	if newest := k.record.Newest(); newest != nil && newest.State == record.Partial && newest.Source == begun.Image {
		begun.Force = len(newest.Forced) > 0 // what was begun by force goes on
	}
	if last := clusterversion.LastCompleted(v.Status.History); last != nil {
		begun.Previous = last.Version
	}
	update := v.Spec.DesiredUpdate
	if update == nil {
		return begun, nil
	}
	release, wrong := requested(v, *update)
	if wrong != "" {
		return begun, []string{wrong}
	}
	if release.Image == "" || release.Image == begun.Image && release.Version == begun.Version && !update.Force {
		return begun, nil
	}
	chosen := *begun
	chosen.Release, chosen.Force = release, update.Force
	if release.Image != begun.Image {
		chosen.signed, chosen.accepted = verification{}, ""
		if unread == nil && len(v.Status.History)+len(k.record.History) > 0 {
			chosen.Before = begun
		}
	}
	return &chosen, nil
}

// begun returns the release that is kept in place, or was begun last, or else the operator's own. If the record is
// lost, it is in the ClusterVersion. Histories end after a hundred updates, so the record also has the release with
// which the operator that has begun the newest one was started. A release that the command line has applied from a
// folder or an archive can't be read here, and one that is not confirmed must not be: its entry is returned as unread.
func (k known) begun(v *configv1.ClusterVersion) (begun configv1.Release, unread *record.HistoryEntry) {
	if k.current != nil {
		return k.current.Release, nil
	}
	own := configv1.Release{Image: k.own}
	isKnown := k.record.Own == k.own ||
		slices.ContainsFunc(k.record.History, func(e record.HistoryEntry) bool { return e.Source == k.own }) ||
		slices.ContainsFunc(v.Status.History, func(h configv1.UpdateHistory) bool { return h.Image == k.own })
	newest := k.record.Newest()
	switch {
	case !isKnown:
		return own, nil
	case newest != nil && isByDigest(newest.Source) && k.isConfirmed:
		return configv1.Release{Image: newest.Source, Version: newest.Version}, nil
	case newest != nil && newest.Source != k.own:
		return configv1.Release{Version: newest.Version}, newest
	case newest == nil && len(v.Status.History) > 0 && isByDigest(v.Status.History[0].Image):
		return configv1.Release{Image: v.Status.History[0].Image, Version: v.Status.History[0].Version}, nil
	default:
		return own, nil
	}
}

// enabled returns the capabilities that stay enabled. Those that the ClusterVersion can't name are in the record.
func (k known) enabled(v *configv1.ClusterVersion) []configv1.ClusterVersionCapability {
	all := slices.Clone(v.Status.Capabilities.EnabledCapabilities)
	if k.current != nil && k.current.Capabilities != nil {
		all = append(all, k.current.Capabilities.AdditionalEnabledCapabilities...)
	}
	if newest := k.record.Newest(); newest != nil {
		all = append(all, newest.Capabilities...)
	}
	return all
}

// requested returns the release of an update, or the error in it. An update to the current release is none.
func requested(v *configv1.ClusterVersion, update configv1.Update) (release configv1.Release, wrong string) {
	release = configv1.Release{Version: update.Version, Image: update.Image, Architecture: update.Architecture}
	switch {
	case update.Image != "":
		return release, checkImage("spec.desiredUpdate.image", update.Image)
	case update.Version == "" && update.Architecture == "":
		return release, "spec.desiredUpdate: name a version or an image"
	case update.Version == "", changesArchitecture(v, update):
		return release, "spec.desiredUpdate.architecture: Runlevel does not change the architecture of a cluster: " +
			"name an image"
	}
	release.Image = imageOf(v, update.Version)
	switch {
	case release.Image != "":
		wrong = checkImage("the image of version "+update.Version, release.Image)
	case update.Version != v.Status.Desired.Version:
		wrong = fmt.Sprintf("spec.desiredUpdate.version: Invalid value: %q: when image is empty the update must be a "+
			"previous version, or an available or a conditional update", update.Version)
	}
	return release, wrong
}

// imageOf returns the image of a version: of one that was applied before, or that is available.
func imageOf(v *configv1.ClusterVersion, version string) string {
	for _, release := range v.Status.AvailableUpdates {
		if release.Version == version {
			return release.Image
		}
	}
	for _, update := range v.Status.ConditionalUpdates {
		if update.Release.Version == version {
			return update.Release.Image
		}
	}
	for _, entry := range v.Status.History {
		if entry.Version == version && entry.Image != "" {
			return entry.Image
		}
	}
	return ""
}

// checkImage returns the error in an image; "" if it has none.
func checkImage(field, image string) string {
	if !isByDigest(image) {
		return fmt.Sprintf("%s: Invalid value: %q: name the image by digest, as REPOSITORY@sha256:DIGEST", field, image)
	}
	return ""
}

// isByDigest reports whether a source is an image that can't become another one. A tag may be another image tomorrow,
// and a path would be one of the operator's own files.
func isByDigest(source string) bool {
	_, err := name.NewDigest(source)
	return err == nil
}

// unmanaged returns the overrides of objects that an administrator manages.
func unmanaged(all []configv1.ComponentOverride) []configv1.ComponentOverride {
	return slices.DeleteFunc(slices.Clone(all), func(o configv1.ComponentOverride) bool { return !o.Unmanaged })
}

// imageIn returns the image of an entry of the record; "" if the release was applied from a folder or an archive.
func imageIn(entry record.HistoryEntry) string {
	if _, err := name.ParseReference(entry.Source, name.StrictValidation); err != nil {
		return ""
	}
	return entry.Source
}

// historyOf returns the history of a ClusterVersion with the entries that only the record has: all of them for one that
// is new or was recreated, and updates that the command line has begun since. Applies of the same release, with other
// filters, are no updates.
func (k *known) historyOf(v *configv1.ClusterVersion) []configv1.UpdateHistory {
	before, known := v.Status.History, k.record
	var history []configv1.UpdateHistory
	for _, entry := range known.History {
		image := k.recordedImage(v, entry)
		isKnown := len(before) > 0 &&
			(before[0].Version == entry.Version && before[0].Image == image ||
				!before[0].StartedTime.Before(&entry.Started))
		if isKnown {
			break
		}
		history = append(history, configv1.UpdateHistory{
			State: configv1.UpdateState(entry.State), Version: entry.Version, Image: image, StartedTime: entry.Started,
			CompletionTime: entry.Completed,
			Verified:       entry.Verified, AcceptedRisks: strings.Join(entry.Forced, ", "),
		})
	}
	before = slices.Clone(before)
	if len(history) > 0 && len(before) > 0 && before[0].CompletionTime == nil {
		before[0].CompletionTime = &history[len(history)-1].StartedTime // it was superseded
	}
	history = append(history, before...)
	for i := range history {
		if i > 0 && history[i].State == configv1.PartialUpdate {
			completeAsRecorded(&history[i], known)
		}
	}
	return history
}

// completeAsRecorded completes a superseded entry that is completed in the record: the next update may have begun
// before that could be written.
func completeAsRecorded(superseded *configv1.UpdateHistory, known *record.Record) {
	at := slices.IndexFunc(known.History, func(e record.HistoryEntry) bool {
		return e.Version == superseded.Version && imageIn(e) == superseded.Image &&
			!superseded.StartedTime.Before(&e.Started)
	})
	if at >= 0 && known.History[at].State == record.Completed {
		superseded.State, superseded.CompletionTime = configv1.CompletedUpdate, known.History[at].Completed
	}
}

// invalidID returns the errors in spec.clusterID of a ClusterVersion, in the words of the cluster-version operator.
// They stop no update.
func invalidID(v *configv1.ClusterVersion) []string {
	text := string(v.Spec.ClusterID)
	id, err := uuid.Parse(text)
	switch {
	case text == "":
		return nil
	case err != nil, id.Variant() != uuid.RFC4122:
		return []string{fmt.Sprintf("spec.clusterID: Invalid value: %q: must be an RFC4122-variant UUID", text)}
	case id.Version() != 4:
		return []string{fmt.Sprintf("spec.clusterID: Invalid value: %q: must be a version-4 UUID", text)}
	default:
		return nil
	}
}

// changesArchitecture reports whether an update without an image requests another architecture than the release has, as
// "oc adm upgrade --to-multi-arch" does with the version that the cluster has.
func changesArchitecture(v *configv1.ClusterVersion, update configv1.Update) bool {
	return update.Image == "" && update.Architecture != "" && update.Architecture != v.Status.Desired.Architecture
}
