package operator

import (
	"fmt"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/runlevel/runlevel/pkg/record"
)

// A target is the release that the cluster is to have, and what of it.
type target struct {
	configv1.Release // its version may be empty: any that the image has will do
	Force            bool
	Overrides        []configv1.ComponentOverride
	Capabilities     *configv1.ClusterVersionCapabilitiesSpec
	Enabled          []configv1.ClusterVersionCapability // that stay enabled
}

// isSame returns whether two targets ask for the same objects. How often a release was asked for, and whether by force,
// does not matter.
func (t *target) isSame(other *target) bool {
	return t.Image == other.Image && (t.Version == other.Version || t.Version == "" || other.Version == "") &&
		equality.Semantic.DeepEqual(t.Overrides, other.Overrides) && equality.Semantic.DeepEqual(t.Capabilities, other.Capabilities)
}

// choose returns the release that a ClusterVersion asks for, and what is wrong with its spec. Without an update, that is the
// release that was begun last, or own: the one that the operator was started with, if that is new.
func choose(v *configv1.ClusterVersion, known *record.Record, own string) (*target, []string) {
	chosen := &target{Overrides: unmanaged(v.Spec.Overrides), Capabilities: v.Spec.Capabilities, Enabled: v.Status.Capabilities.EnabledCapabilities}
	chosen.Release = withoutUpdate(known, own)
	update := v.Spec.DesiredUpdate
	if update == nil {
		return chosen, nil
	}
	release, wrong := requested(v, known, *update)
	if wrong != "" {
		return chosen, []string{wrong}
	}
	if release.Image != "" {
		chosen.Release, chosen.Force = release, update.Force
	}
	return chosen, nil
}

// withoutUpdate returns the release of a ClusterVersion that asks for none.
func withoutUpdate(known *record.Record, own string) configv1.Release {
	isKnown := slices.ContainsFunc(known.History, func(e record.HistoryEntry) bool { return e.Source == own })
	newest := known.Newest()
	if newest == nil || !isByDigest(newest.Source) || !isKnown && isByDigest(own) {
		return configv1.Release{Image: own}
	}
	return configv1.Release{Image: newest.Source, Version: newest.Version}
}

// requested returns the release of an update, or what is wrong with it. An update to what the cluster has is none.
func requested(v *configv1.ClusterVersion, known *record.Record, update configv1.Update) (release configv1.Release, wrong string) {
	release = configv1.Release{Version: update.Version, Image: update.Image, Architecture: update.Architecture}
	switch {
	case update.Image != "":
		return release, checkImage(update.Image)
	case update.Version == "" && update.Architecture == "":
		return release, "spec.desiredUpdate: name a version or an image"
	case update.Version == "":
		return release, "spec.desiredUpdate.architecture: Runlevel does not change the architecture of a cluster: name an image"
	}
	release.Image = imageOf(v, known, update.Version)
	if release.Image == "" && update.Version != v.Status.Desired.Version {
		wrong = fmt.Sprintf("spec.desiredUpdate.version: Invalid value: %q: when image is empty the update must be a previous version or an available update", update.Version)
	}
	return release, wrong
}

// imageOf returns the image of a version: of one that was applied before, or that is available.
func imageOf(v *configv1.ClusterVersion, known *record.Record, version string) string {
	for _, entry := range known.History {
		if entry.Version == version {
			return entry.Source
		}
	}
	for _, one := range v.Status.AvailableUpdates {
		if one.Version == version {
			return one.Image
		}
	}
	for _, one := range v.Status.ConditionalUpdates {
		if one.Release.Version == version {
			return one.Release.Image
		}
	}
	return ""
}

// checkImage returns what is wrong with the image of an update.
func checkImage(image string) string {
	if !isByDigest(image) {
		return fmt.Sprintf("spec.desiredUpdate.image: Invalid value: %q: name the image by digest, as REPOSITORY@sha256:DIGEST", image)
	}
	return ""
}

// isByDigest returns whether a source is an image that can't become another one. A tag may be another image tomorrow,
// and a path would be one of the operator's own files.
func isByDigest(source string) bool {
	_, err := name.NewDigest(source)
	return err == nil
}

// unmanaged returns the overrides of objects that an administrator manages.
func unmanaged(all []configv1.ComponentOverride) []configv1.ComponentOverride {
	return slices.DeleteFunc(slices.Clone(all), func(o configv1.ComponentOverride) bool { return !o.Unmanaged })
}
