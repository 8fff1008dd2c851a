package payload

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// ParseCapabilities parses a list such as "v4.14,Console,MyOwn": a baseline set of
// OpenShift's (None, vCurrent, v4.11 and on), and names to add to it. Names that
// OpenShift does not have become known capabilities.
func ParseCapabilities(list string) (*configv1.ClusterVersionCapabilitiesStatus, error) {
	status := &configv1.ClusterVersionCapabilitiesStatus{
		KnownCapabilities: slices.Clone(configv1.KnownClusterVersionCapabilities),
	}
	for i, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		baseline, isBaseline := configv1.ClusterVersionCapabilitySets[configv1.ClusterVersionCapabilitySet(name)]
		switch {
		case name == "":
			return nil, fmt.Errorf("an empty name in %q: write a list such as vCurrent or None,Console", list)
		case isBaseline && i > 0:
			return nil, fmt.Errorf("the baseline %s must come first in %q", name, list)
		case isBaseline:
			status.EnabledCapabilities = append(status.EnabledCapabilities, baseline...)
		case looksLikeBaseline.MatchString(name):
			return nil, fmt.Errorf("unknown baseline %s: there are %s", name,
				strings.Join(CapabilityBaselines(), ", "))
		default:
			capability := configv1.ClusterVersionCapability(name)
			status.EnabledCapabilities = append(status.EnabledCapabilities, capability)
			status.KnownCapabilities = append(status.KnownCapabilities, capability)
		}
	}
	status.EnabledCapabilities = inOrder(status.EnabledCapabilities)
	status.KnownCapabilities = inOrder(status.KnownCapabilities)
	return status, nil
}

// looksLikeBaseline matches a mistyped baseline. It is not taken for a capability, since that would disable all others.
var looksLikeBaseline = regexp.MustCompile(`(?i)^(none|vcurrent|v\d+(\.\d+)*)$`)

// KnownCapabilities returns the capabilities of OpenShift.
func KnownCapabilities() []string { return Names(configv1.KnownClusterVersionCapabilities) }

// FeatureSets returns the feature sets of OpenShift, with "Default" for none.
func FeatureSets() []string {
	names := []string{"Default"}
	for _, set := range configv1.AllFixedFeatureSets {
		if set != configv1.Default {
			names = append(names, string(set))
		}
	}
	return append(names, string(configv1.CustomNoUpgrade))
}

// Names returns names of any type as texts.
func Names[T ~string](names []T) []string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return texts
}

// CapabilityBaselines returns the baseline sets that ParseCapabilities accepts, sorted.
func CapabilityBaselines() []string {
	return Names(slices.Sorted(maps.Keys(configv1.ClusterVersionCapabilitySets)))
}

// ImplicitlyEnabled returns the capabilities that an update must enable,
// because an applied object would belong to them: a managed object
// does not become unmanaged silently. Both payloads must have been read
// with the cluster's filter, and the same capabilities.
func ImplicitlyEnabled(from, payload *Payload) []configv1.ClusterVersionCapability {
	applied := map[kinds.ID]bool{}
	for _, m := range from.Manifests {
		applied[m.ID()] = true
	}
	return EnabledByObjects(payload, func(id kinds.ID) bool { return applied[id] })
}

// EnabledByObjects is ImplicitlyEnabled for applied objects.
func EnabledByObjects(payload *Payload, isApplied func(kinds.ID) bool) []configv1.ClusterVersionCapability {
	var found []configv1.ClusterVersionCapability
	for _, exclusion := range payload.Excluded {
		if exclusion.Filter != ByCapabilities || !isApplied(exclusion.Manifest.ID()) {
			continue
		}
		for _, name := range exclusion.Manifest.namesFor(ByCapabilities) {
			found = append(found, configv1.ClusterVersionCapability(name))
		}
	}
	found = slices.DeleteFunc(found, func(c configv1.ClusterVersionCapability) bool {
		return slices.Contains(payload.Filter.enabledCapabilities(), c)
	})
	return inOrder(found)
}

// WithCapabilities returns the filter with more capabilities enabled. If f has no capabilities, and so includes all,
// and more is empty, it returns f unchanged.
func (f Filter) WithCapabilities(more []configv1.ClusterVersionCapability) Filter {
	if f.Capabilities == nil && len(more) == 0 {
		return f
	}
	status := configv1.ClusterVersionCapabilitiesStatus{}
	if f.Capabilities != nil {
		status = *f.Capabilities
	}
	f.Capabilities = &configv1.ClusterVersionCapabilitiesStatus{
		EnabledCapabilities: inOrder(slices.Concat(status.EnabledCapabilities, more)),
		KnownCapabilities:   inOrder(slices.Concat(status.KnownCapabilities, more)),
	}
	return f
}

func (f Filter) enabledCapabilities() []configv1.ClusterVersionCapability {
	if f.Capabilities == nil {
		return nil
	}
	return f.Capabilities.EnabledCapabilities
}

func inOrder(names []configv1.ClusterVersionCapability) []configv1.ClusterVersionCapability {
	slices.Sort(names)
	return slices.Compact(names)
}
