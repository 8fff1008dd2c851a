package payload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/manifest"

	"github.com/runlevel/runlevel/pkg/kinds"
)

const (
	capabilityAnnotation   = manifest.CapabilityAnnotation
	includePrefix          = "include.release.openshift.io/"
	excludePrefix          = "exclude.release.openshift.io/"
	featureSetAnnotation   = "release.openshift.io/feature-set"
	featureGateAnnotation  = "release.openshift.io/feature-gate"
	majorVersionAnnotation = "release.openshift.io/major-version"
)

// maxSame is how many manifests of one object are listed and compared, one with each other.
const maxSame = 20

// duplicates finds objects that a payload has more than once, though they have
// passed the filter. Each is one problem, at the first place.
func duplicates(manifests []*Manifest, filter Filter) []Problem {
	places := make(map[kinds.ID][]*Manifest, len(manifests))
	for _, m := range manifests {
		places[m.ID()] = append(places[m.ID()], m)
	}
	var problems []Problem
	for _, m := range manifests {
		same := places[m.ID()]
		if len(same) == 1 || same[0] != m {
			continue
		}
		more := ""
		if len(same) > maxSame {
			more = fmt.Sprintf(" and %d more", len(same)-maxSame)
			same = same[:maxSame]
		}
		others := make([]string, 0, len(same)-1)
		for _, other := range same[1:] {
			others = append(others, fmt.Sprintf("%s:%d", other.Path, other.Line))
		}
		problems = append(problems, m.problem(Duplicate, "the same object is in %s%s: %s", strings.Join(others, ", "), more, advice(same, filter)))
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
	for _, choice := range flagChoices(same, filter) {
		if slices.ContainsFunc(choice.filters, func(f Filter) bool { return leavesOne(f, same) }) {
			var each []string
			for _, m := range same {
				each = append(each, listed(choice.values(m)))
			}
			return fmt.Sprintf("%s chooses between them (%s)", choice.flag, strings.Join(each, " | "))
		}
	}
	return "keep one of them"
}

// leavesOne says whether a filter lets just one of some manifests in.
func leavesOne(f Filter, same []*Manifest) bool {
	in := 0
	for _, m := range same {
		if exclusion, err := f.exclusion(m); err == nil && exclusion == nil {
			in++
		}
	}
	return in == 1
}

// A flagChoice is a flag, and the filters that it can select.
type flagChoice struct {
	flag    string
	values  func(*Manifest) []string // that a manifest has for it
	filters []Filter
}

// flagChoices returns the flags that are not in use, each with the values that the manifests name.
func flagChoices(same []*Manifest, filter Filter) []flagChoice {
	var all []flagChoice
	add := func(isSet bool, flag string, values func(*Manifest) []string, filters func(value string) []Filter) {
		if isSet {
			return
		}
		c := flagChoice{flag: flag, values: values}
		for _, m := range same {
			for _, value := range values(m) {
				c.filters = append(c.filters, filters(value)...)
			}
		}
		all = append(all, c)
	}
	below := func(prefix string) func(*Manifest) []string {
		return func(m *Manifest) []string { return annotationsBelow(m, prefix) }
	}
	list := func(annotation, separator string) func(*Manifest) []string {
		return func(m *Manifest) []string { return annotationList(m, annotation, separator) }
	}
	add(filter.Profile != "", "--profile", below(includePrefix), func(v string) []Filter { return []Filter{{Profile: v}} })
	add(filter.Exclude != "", "--exclude", below(excludePrefix), func(v string) []Filter { return []Filter{{Exclude: v}} })
	add(filter.FeatureSet != "", "--feature-set", list(featureSetAnnotation, ","), func(v string) []Filter {
		return []Filter{{FeatureSet: v}, {FeatureSet: "Default"}}
	})
	add(filter.FeatureGates != nil, "--feature-gates", list(featureGateAnnotation, ","), func(v string) []Filter {
		return []Filter{{FeatureGates: []string{strings.TrimPrefix(v, "-")}}, {FeatureGates: []string{}}}
	})
	add(filter.MajorVersion != 0, "--major-version", list(majorVersionAnnotation, ","), func(v string) []Filter {
		number, _ := strconv.ParseUint(strings.TrimPrefix(v, "-"), 10, 64)
		return []Filter{{MajorVersion: number}}
	})
	add(filter.Capabilities != nil, "--capabilities", list(capabilityAnnotation, "+"), func(v string) []Filter {
		return []Filter{Filter{}.WithCapabilities([]configv1.ClusterVersionCapability{configv1.ClusterVersionCapability(v)}), Filter{}.WithCapabilities(nil)}
	})
	return all
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
