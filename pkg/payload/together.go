package payload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Together finds a cluster on which two manifests of a release are both applied, as
// the filter that chooses it, and says whether there is any. Of one manifest it says,
// given it twice, whether it is applied anywhere.
func Together(a, b *Manifest) (Filter, bool) {
	for _, filter := range clusters(a, b) {
		if filter.Includes(a) && filter.Includes(b) {
			return filter, true
		}
	}
	return Filter{}, false
}

// Includes says whether a filter lets a manifest in.
func (f Filter) Includes(m *Manifest) bool {
	exclusion, err := f.exclusion(m)
	return err == nil && exclusion == nil
}

// clusters are all that the annotations of some manifests can tell apart. Feature gates
// and capabilities are on that any of them wants: that some are off keeps no two
// manifests together.
func clusters(manifests ...*Manifest) []Filter {
	var profiles, sets, gates []string
	var majors []uint64
	for _, m := range manifests {
		profiles = append(profiles, annotationsBelow(m, includePrefix)...)
		sets = append(sets, annotationList(m, featureSetAnnotation, ",")...)
		gates = append(gates, wanted(annotationList(m, featureGateAnnotation, ","))...)
		majors = append(majors, numbers(annotationList(m, majorVersionAnnotation, ","))...)
	}
	if len(sets) > 0 {
		sets = append([]string{"Default"}, sets...)
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

// wanted are the feature gates of a list that must be on.
func wanted(gates []string) []string {
	return slices.DeleteFunc(gates, func(gate string) bool { return strings.HasPrefix(gate, "-") })
}

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
