package operator

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A target is the desired release of the cluster, with the settings that choose its objects.
type target struct {
	configv1.Release // if it has no version, any version of the image is accepted
	Force            bool
	Overrides        []configv1.ComponentOverride
	Capabilities     *configv1.ClusterVersionCapabilitiesSpec
	Enabled          []configv1.ClusterVersionCapability // capabilities that stay enabled
	Injection        payload.Injection                   // settings of the cluster that manifests may ask for
	Features         Features                            // features of the cluster
	// Before is another release, which was started last. It is kept in place until this release is accepted.
	Before *target
	// Preflight is a release that is only checked, while this one is kept in place; nil if none is requested.
	Preflight   *target
	IsAutomatic bool         // the preflight is for an automatic update, and not in the spec
	signed      verification // verification of the image, if the release was begun before
	// Previous is the last completed version in the history of the ClusterVersion.
	Previous string
	// unread is the release that was applied last, if the operator can't read its source, or if its entry of the record
	// is not confirmed.
	unread *record.HistoryEntry
	// accepted is the digest of the files of the release when it was accepted, if it was started last.
	accepted string
	// acceptedBy are the field managers that set the accepted risks of the spec.
	acceptedBy string
	// riskNames are the names of the accepted risks of the spec, if this is a preflight: its result depends on them.
	riskNames []string
}

// at returns the acceptance of a target in a phase.
func (t *target) at(phase clusterversion.AcceptancePhase) clusterversion.Acceptance {
	return clusterversion.Acceptance{
		Release: t.Release, Architecture: architecture, FeatureSet: t.Features.Set, Phase: phase,
	}
}

// isSame reports whether two targets are the same request. Enabled and Before do not matter.
func (t *target) isSame(other *target) bool {
	if t == nil || other == nil {
		return t == other
	}
	return t.Version == other.Version && t.Force == other.Force && t.hasSameObjects(other) &&
		slices.Equal(t.riskNames, other.riskNames) && t.Preflight.isSame(other.Preflight)
}

// hasSameObjects reports whether two targets have the same objects.
func (t *target) hasSameObjects(other *target) bool {
	return t.Image == other.Image && equality.Semantic.DeepEqual(t.Overrides, other.Overrides) &&
		equality.Semantic.DeepEqual(t.Capabilities, other.Capabilities) &&
		equality.Semantic.DeepEqual(t.Injection, other.Injection) &&
		equality.Semantic.DeepEqual(t.Features, other.Features)
}

// targetInputs are the inputs of choose beside the ClusterVersion.
type targetInputs struct {
	record      *record.Record
	current     *target           // target of the current release; nil if there is none
	own         string            // the release that the operator was started with
	isConfirmed bool              // the newest entry of the record is confirmed
	toCheck     *configv1.Release // release whose preflight automatic updates wait for; nil if there is none
}

// confirm sets whether the newest entry of the record is confirmed: its image is the operator's own, the current one,
// or one that the ClusterVersion requests (not for a preflight), or names as begun last. Without this check, an account
// that may only write ConfigMaps in the namespace of the record could have any image applied. Sources of the command
// line need no confirmation: the operator never applies them. The history of the ClusterVersion must not have entries
// of the record.
func (i *targetInputs) confirm(v *configv1.ClusterVersion) {
	newest := i.record.Newest()
	i.isConfirmed = newest == nil || i.confirms(v, newest.Source)
}

// confirms reports whether an image is confirmed. Sources of the command line always are.
func (i *targetInputs) confirms(v *configv1.ClusterVersion, image string) bool {
	update := v.Spec.DesiredUpdate
	isCurrent := i.current != nil && i.current.Image == image
	isBegun := v.Status.Desired.Image == image || len(v.Status.History) > 0 && v.Status.History[0].Image == image
	isRequested := update != nil && update.Mode == "" &&
		(update.Image == image || update.Image == "" && imageOf(v, update.Version) == image)
	return !isByDigest(image) || image == i.own || isCurrent || isBegun || isRequested
}

// recordedImage returns the image of an entry of the record. It returns "" if the release was applied from a folder or
// an archive, or if only the record has the image: a user can request an image of the history by its version.
func (i *targetInputs) recordedImage(v *configv1.ClusterVersion, entry record.HistoryEntry) string {
	image := imageIn(entry)
	isInHistory := slices.ContainsFunc(v.Status.History, func(h configv1.UpdateHistory) bool {
		return h.Image == image
	})
	if !isInHistory && !i.confirms(v, image) {
		return ""
	}
	return image
}

// choose returns the target of a ClusterVersion, and the errors in its spec. If the spec has no update, the target is
// the release that begun returns. It also is if the spec has a preflight, which the target then contains.
func choose(v *configv1.ClusterVersion, inputs targetInputs) (*target, []string) {
	release, unread := inputs.begun(v)
	begun := &target{
		Release: release, unread: unread, Overrides: unmanaged(v.Spec.Overrides), Capabilities: v.Spec.Capabilities,
		Enabled: inputs.enabled(v),
	}
	begun.signed = recorded(v, inputs.record, begun.Image)
	if v.Status.Desired.Image == begun.Image {
		begun.accepted = v.Status.VersionHash
	}
	if newest := inputs.record.Newest(); newest != nil && newest.State == record.Partial &&
		newest.Source == begun.Image {
		begun.Force = len(newest.Forced) > 0 // an update that was begun by force continues
	}
	if last := clusterversion.LastCompleted(v.Status.History); last != nil {
		begun.Previous = last.Version
	}
	update := v.Spec.DesiredUpdate
	switch isNone := update == nil || requestsNoRelease(*update); {
	case isNone && inputs.toCheck == nil:
		return begun, nil
	case isNone:
		begun.IsAutomatic = true
		update = &configv1.Update{
			Version: inputs.toCheck.Version, Image: inputs.toCheck.Image, Mode: configv1.UpdateModePreflight,
		}
	}
	release, invalid := requested(v, *update)
	if invalid != "" {
		return begun, []string{invalid}
	}
	chosen, isPreflight := *begun, update.Mode == configv1.UpdateModePreflight
	switch {
	case release.Image == "" && isPreflight:
		release = begun.Release
	case release.Image == "",
		release.Image == begun.Image && release.Version == begun.Version && !update.Force && !isPreflight:
		return begun, nil
	}
	chosen.Release, chosen.Force, chosen.acceptedBy = release, update.Force, acceptedBy(v)
	if release.Image != begun.Image {
		chosen.signed, chosen.accepted = verification{}, ""
	}
	switch {
	case isPreflight:
		chosen.riskNames = acceptedRiskNames(v.Spec)
		begun.Preflight = &chosen
		return begun, nil
	case release.Image != begun.Image && unread == nil && len(v.Status.History)+len(inputs.record.History) > 0:
		chosen.Before = begun
	}
	return &chosen, nil
}

// begun returns the current release, or the one that was begun last, by the record, or by the ClusterVersion if the
// record is lost. It returns the operator's own release if it is new: neither a history, which ends after a hundred
// updates, nor the record has it; the record also has the own release of the operator that has begun the newest one. An
// operator can't read a release that the command line has applied from a folder or an archive, and must not read an
// unconfirmed image: begun returns its entry as unread.
func (i *targetInputs) begun(v *configv1.ClusterVersion) (begun configv1.Release, unread *record.HistoryEntry) {
	if i.current != nil {
		return i.current.Release, nil
	}
	own := configv1.Release{Image: i.own}
	isKnown := i.record.Own == i.own ||
		slices.ContainsFunc(i.record.History, func(e record.HistoryEntry) bool { return e.Source == i.own }) ||
		slices.ContainsFunc(v.Status.History, func(h configv1.UpdateHistory) bool { return h.Image == i.own })
	newest := i.record.Newest()
	switch {
	case !isKnown:
		return own, nil
	case newest != nil && isByDigest(newest.Source) && i.isConfirmed:
		return configv1.Release{Image: newest.Source, Version: newest.Version}, nil
	case newest != nil && newest.Source != i.own:
		return configv1.Release{Version: newest.Version}, newest
	case newest == nil && len(v.Status.History) > 0 && isByDigest(v.Status.History[0].Image):
		return configv1.Release{Image: v.Status.History[0].Image, Version: v.Status.History[0].Version}, nil
	default:
		return own, nil
	}
}

// enabled returns the capabilities that stay enabled. The record has those that a ClusterVersion can't name.
func (i *targetInputs) enabled(v *configv1.ClusterVersion) []configv1.ClusterVersionCapability {
	all := slices.Clone(v.Status.Capabilities.EnabledCapabilities)
	if i.current != nil && i.current.Capabilities != nil {
		all = append(all, i.current.Capabilities.AdditionalEnabledCapabilities...)
	}
	if newest := i.record.Newest(); newest != nil {
		all = append(all, newest.Capabilities...)
	}
	return all
}

// requested returns the release of an update, or the error in the update.
func requested(v *configv1.ClusterVersion, update configv1.Update) (release configv1.Release, invalid string) {
	release = configv1.Release{Version: update.Version, Image: update.Image, Architecture: update.Architecture}
	switch {
	case update.Mode != "" && update.Mode != configv1.UpdateModePreflight:
		return release, fmt.Sprintf("spec.desiredUpdate.mode: Unsupported value: %q: write %q to check the update, "+
			"or remove the mode to begin it", update.Mode, configv1.UpdateModePreflight)
	case update.Image != "":
		return release, checkImage("spec.desiredUpdate.image", update.Image)
	case update.Version == "" && update.Architecture == "" && update.Mode != "":
		return release, "spec.desiredUpdate: name the version or the image to check"
	case update.Version == "" && update.Architecture == "":
		return release, "spec.desiredUpdate: name a version, an image, or risks to accept"
	case update.Version == "", changesArchitecture(v, update):
		return release, "spec.desiredUpdate.architecture: Runlevel does not change the architecture of a cluster: " +
			"name an image"
	}
	release.Image = imageOf(v, update.Version)
	switch {
	case release.Image != "":
		invalid = checkImage("the image of version "+update.Version, release.Image)
	case update.Version != v.Status.Desired.Version:
		invalid = fmt.Sprintf("spec.desiredUpdate.version: Invalid value: %q: when image is empty the update must be "+
			"a previous version, or an available or a conditional update", update.Version)
	}
	return release, invalid
}

// requestsNoRelease reports whether an update only has accepted risks, which count for the next one, or nothing, as
// after "oc adm upgrade accept --clear".
func requestsNoRelease(update configv1.Update) bool {
	return (len(update.AcceptRisks) > 0 || !update.Force) && update.Version == "" && update.Image == "" &&
		update.Architecture == "" && update.Mode == ""
}

// acceptedRiskNames returns the names of the risks that a spec accepts.
func acceptedRiskNames(spec configv1.ClusterVersionSpec) []string {
	if spec.DesiredUpdate == nil {
		return nil
	}
	var names []string
	for _, risk := range spec.DesiredUpdate.AcceptRisks {
		names = append(names, risk.Name)
	}
	return names
}

// acceptedBy returns the field managers that set the accepted risks of a ClusterVersion.
func acceptedBy(v *configv1.ClusterVersion) string {
	var managers []string
	for _, entry := range v.ManagedFields {
		if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:acceptRisks"`)) {
			managers = append(managers, entry.Manager)
		}
	}
	return printable.Line(strings.Join(slices.Compact(slices.Sorted(slices.Values(managers))), " and "))
}

// imageOf returns the image of an available version, or of one in the history.
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

// checkImage returns the error in an image, or "".
func checkImage(field, image string) string {
	if !isByDigest(image) {
		return fmt.Sprintf("%s: Invalid value: %q: name the image by digest, as REPOSITORY@sha256:DIGEST", field, image)
	}
	return ""
}

// isByDigest reports whether a source is an image by digest. A tag may be moved to another image, and a path would
// one of the operator's own files.
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

// historyOf returns the history of a ClusterVersion with the entries that only the record has: all entries if the
// ClusterVersion is new or was recreated, and later updates of the command line. An apply of the same release with
// other filters is not an update.
func (i *targetInputs) historyOf(v *configv1.ClusterVersion) []configv1.UpdateHistory {
	before := slices.Clone(v.Status.History)
	var history []configv1.UpdateHistory
	for _, entry := range i.record.History {
		image := i.recordedImage(v, entry)
		isKnown := len(before) > 0 &&
			(before[0].Version == entry.Version && before[0].Image == image ||
				!before[0].StartedTime.Before(&entry.Started))
		if isKnown {
			break
		}
		history = append(history, configv1.UpdateHistory{
			State: configv1.UpdateState(entry.State), Version: entry.Version, Image: image,
			StartedTime: entry.Started, CompletionTime: entry.Completed,
			Verified: entry.Verified, AcceptedRisks: strings.Join(entry.Forced, ", "),
		})
	}
	if len(history) > 0 && len(before) > 0 && before[0].CompletionTime == nil {
		before[0].CompletionTime = &history[len(history)-1].StartedTime // it was superseded
	}
	history = append(history, before...)
	for index := range history {
		if index > 0 && history[index].State == configv1.PartialUpdate {
			completeAsRecorded(&history[index], i.record)
		}
	}
	return history
}

// completeAsRecorded completes a superseded entry that the record has as completed: the next update may have begun
// before the operator could write the completion.
func completeAsRecorded(superseded *configv1.UpdateHistory, recorded *record.Record) {
	index := slices.IndexFunc(recorded.History, func(e record.HistoryEntry) bool {
		return e.Version == superseded.Version && imageIn(e) == superseded.Image &&
			!superseded.StartedTime.Before(&e.Started)
	})
	if index >= 0 && recorded.History[index].State == record.Completed {
		superseded.State, superseded.CompletionTime = configv1.CompletedUpdate, recorded.History[index].Completed
	}
}

// invalidID returns the errors in spec.clusterID of a ClusterVersion, in the words of the cluster-version operator.
// They do not block updates.
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

// changesArchitecture reports whether an update without an image requests another architecture than the one of the
// release, like "oc adm upgrade --to-multi-arch".
func changesArchitecture(v *configv1.ClusterVersion, update configv1.Update) bool {
	return update.Image == "" && update.Architecture != "" && update.Architecture != v.Status.Desired.Architecture
}
