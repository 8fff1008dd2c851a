package payload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// Together finds a cluster on which two manifests of a release are both applied, as
// the filter that chooses it, and says whether there is any. Of one manifest it says,
// given it twice, whether it is applied anywhere.
func Together(a, b *Manifest) (Filter, bool) {
	gates := append(gatesOf(a, wanted), gatesOf(b, wanted)...)
	for _, filter := range clusters([]*Manifest{a, b}, gates) {
		if filter.Includes(a) && filter.Includes(b) {
			return filter, true
		}
	}
	return Filter{}, false
}

// Without finds a cluster on which a manifest is applied, and none of some others is.
func Without(m *Manifest, others []*Manifest) (Filter, bool) {
	fewest := append([]string{}, gatesOf(m, wanted)...) // none is not the same as not to ask
	most := slices.Clone(fewest)
	for _, other := range others {
		most = append(most, gatesOf(other, unwanted)...)
	}
	for _, gates := range [][]string{fewest, most} {
		for _, filter := range clusters(append(slices.Clone(others), m), gates) {
			if filter.Includes(m) && !slices.ContainsFunc(others, filter.Includes) {
				return filter, true
			}
		}
	}
	return Filter{}, false
}

// Includes says whether a filter lets a manifest in.
func (f Filter) Includes(m *Manifest) bool {
	exclusion, err := f.exclusion(m)
	return err == nil && exclusion == nil
}

// clusters are all that the annotations of some manifests can tell apart, with some
// feature gates on. All capabilities are on: that some are off keeps no two manifests
// together.
func clusters(manifests []*Manifest, gates []string) []Filter {
	var profiles, sets []string
	var majors []uint64
	for _, m := range manifests {
		profiles = append(profiles, annotationsBelow(m, includePrefix)...)
		sets = append(sets, annotationList(m, featureSetAnnotation, ",")...)
		majors = append(majors, numbers(annotationList(m, majorVersionAnnotation, ","))...)
	}
	if len(sets) > 0 {
		sets = append(append([]string{"Default"}, sets...), string(configv1.CustomNoUpgrade), string(configv1.TechPreviewNoUpgrade))
	}
	if len(majors) > 0 {
		majors = append(majors, slices.Max(majors)+1)
	}
	var found []Filter
	for _, profile := range orNone(profiles) {
		for _, set := range orNone(sets) {
			for _, major := range orNone(majors) {
				found = append(found, Filter{Profile: profile, FeatureSet: set, FeatureGates: gates, MajorVersion: major})
			}
		}
	}
	return found
}

// gatesOf are the feature gates that a manifest names, those that must be on or those
// that must be off.
func gatesOf(m *Manifest, which func(gate string) bool) []string {
	var found []string
	for _, gate := range annotationList(m, featureGateAnnotation, ",") {
		if gate = strings.TrimSpace(gate); gate != "" && which(gate) {
			found = append(found, strings.TrimPrefix(gate, "-"))
		}
	}
	return found
}

func unwanted(gate string) bool { return strings.HasPrefix(gate, "-") }
func wanted(gate string) bool   { return !unwanted(gate) }

// numbers are the major versions of a list, wanted or not.
func numbers(versions []string) []uint64 {
	var found []uint64
	for _, version := range versions {
		if number, err := strconv.ParseUint(strings.TrimPrefix(version, "-"), 10, 64); err == nil {
			found = append(found, number)
		}
	}
	return found
}

// orNone are the values of a filter to try: only that of no filter where nobody names
// any.
func orNone[T comparable](values []T) []T {
	if len(values) == 0 {
		return make([]T, 1)
	}
	var unique []T
	for _, value := range values {
		if !slices.Contains(unique, value) {
			unique = append(unique, value)
		}
	}
	return unique
}

// String is the filter in the words of the flags: "profile X, feature set Y".
func (f Filter) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+value)
		}
	}
	add("profile", f.Profile)
	add("feature set", f.FeatureSet)
	add("feature gates", strings.Join(f.FeatureGates, ", "))
	if f.MajorVersion != 0 {
		add("major version", fmt.Sprint(f.MajorVersion))
	}
	return strings.Join(parts, ", ")
}
