package payload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/openshift/library-go/pkg/manifest"
)

const (
	capabilityAnnotation   = manifest.CapabilityAnnotation
	includePrefix          = "include.release.openshift.io/"
	excludePrefix          = "exclude.release.openshift.io/"
	featureSetAnnotation   = "release.openshift.io/feature-set"
	featureGateAnnotation  = "release.openshift.io/feature-gate"
	majorVersionAnnotation = "release.openshift.io/major-version"
)

// duplicates finds objects that a payload has more than once, though they have
// passed the filter. Each is one problem, at the first place.
func duplicates(manifests []*Manifest, filter Filter) []Problem {
	places := make(map[ID][]*Manifest, len(manifests))
	for _, m := range manifests {
		places[m.ID()] = append(places[m.ID()], m)
	}
	var problems []Problem
	for _, m := range manifests {
		same := places[m.ID()]
		if len(same) == 1 || same[0] != m {
			continue
		}
		others := make([]string, 0, len(same)-1)
		for _, other := range same[1:] {
			others = append(others, fmt.Sprintf("%s:%d", other.Path, other.Line))
		}
		problems = append(problems, m.problem(Duplicate, "the same object is in %s: %s", strings.Join(others, ", "), advice(same, filter)))
	}
	return problems
}

// advice says what to do about an object that is there several times. A filter that
// is in use has let all of them in, so it is no other one that chooses.
func advice(same []*Manifest, filter Filter) string {
	deletes := slices.ContainsFunc(same, (*Manifest).IsTombstone)
	creates := slices.ContainsFunc(same, func(m *Manifest) bool { return !m.IsTombstone() })
	if deletes && creates {
		return "one deletes what another creates, without end: keep one of them"
	}
	for _, choice := range []struct {
		flag   string
		isSet  bool
		values func(*Manifest) []string
	}{
		{"--profile", filter.Profile != "", func(m *Manifest) []string { return annotationsBelow(m, includePrefix) }},
		{"--exclude", filter.Exclude != "", func(m *Manifest) []string { return annotationsBelow(m, excludePrefix) }},
		{"--feature-set", filter.FeatureSet != "", func(m *Manifest) []string { return annotationList(m, featureSetAnnotation, ",") }},
		{"--feature-gates", filter.FeatureGates != nil, func(m *Manifest) []string { return annotationList(m, featureGateAnnotation, ",") }},
		{"--major-version", filter.MajorVersion != 0, func(m *Manifest) []string { return annotationList(m, majorVersionAnnotation, ",") }},
		{"--capabilities", filter.Capabilities != nil, func(m *Manifest) []string { return annotationList(m, capabilityAnnotation, "+") }},
	} {
		var each []string
		for _, m := range same {
			each = append(each, listed(choice.values(m)))
		}
		if !choice.isSet && len(slices.Compact(slices.Sorted(slices.Values(each)))) > 1 {
			return fmt.Sprintf("%s chooses between them (%s)", choice.flag, strings.Join(each, " | "))
		}
	}
	return "keep one of them"
}

func listed(values []string) string {
	if len(values) == 0 {
		return "any"
	}
	return strings.Join(values, ",")
}

// annotationsBelow are the names behind a prefix of annotations.
func annotationsBelow(m *Manifest, prefix string) []string {
	var names []string
	for key := range maps.Keys(m.annotations()) {
		if name, found := strings.CutPrefix(key, prefix); found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func annotationList(m *Manifest, annotation, separator string) []string {
	value := m.annotations()[annotation]
	if value == "" {
		return nil
	}
	names := strings.Split(value, separator)
	slices.Sort(names)
	return names
}
