package payload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// maxSame limits the manifests of one object that are listed, and compared with each other.
const maxSame = 20

// duplicates finds objects that a payload has more than once after
// filtering. Each is one problem, at its first manifest.
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
		problems = append(problems,
			m.problem(Duplicate, "the same object is in %s%s: %s", strings.Join(others, ", "), more,
				advice(same, filter)))
	}
	return problems
}

// advice returns what to do about an object with several manifests. A filter that
// is set has included all manifests, so only another filter can select one.
func advice(same []*Manifest, filter Filter) string {
	deletes := slices.ContainsFunc(same, (*Manifest).IsTombstone)
	creates := slices.ContainsFunc(same, func(m *Manifest) bool { return !m.IsTombstone() })
	if deletes && creates {
		return "one deletes what another creates, without end: keep one of them"
	}
	for _, by := range []FilterName{ByProfile, ByExclude, ByFeatureSet, ByFeatureGates, ByMajorVersion,
		ByCapabilities} {
		if filter.isSet(by) || !slices.ContainsFunc(collect(same, by), func(name string) bool {
			return choosesOne(by, name, same)
		}) {
			continue
		}
		var each []string
		for _, m := range same {
			each = append(each, cmp.Or(strings.Join(m.namesFor(by), ","), "any"))
		}
		return fmt.Sprintf("--%s chooses between them (%s)", by, strings.Join(each, " | "))
	}
	return "keep one of them"
}

// choosesOne reports whether a filter with a name, or with none, can include exactly one of some manifests.
func choosesOne(by FilterName, name string, same []*Manifest) bool {
	return slices.ContainsFunc(selections(by, name), func(f Filter) bool {
		index := 0
		for _, m := range same {
			if exclusion, err := f.exclusion(m); err == nil && exclusion == nil {
				index++
			}
		}
		return index == 1
	})
}

// selections returns the filters that can be set for a name in a manifest, and the one for no name.
func selections(by FilterName, name string) []Filter {
	switch by {
	case ByProfile:
		return []Filter{{Profile: name}}
	case ByExclude:
		return []Filter{{Exclude: name}}
	case ByFeatureSet:
		return []Filter{{FeatureSet: name}, {FeatureSet: "Default"}}
	case ByFeatureGates:
		return []Filter{{FeatureGates: []string{strings.TrimPrefix(name, "-")}}, {FeatureGates: []string{}}}
	case ByMajorVersion:
		number, _ := strconv.ParseUint(strings.TrimPrefix(name, "-"), 10, 64)
		return []Filter{{MajorVersion: number}}
	case ByCapabilities:
		return []Filter{Filter{}.WithCapabilities(
			[]configv1.ClusterVersionCapability{configv1.ClusterVersionCapability(name)},
		), Filter{}.WithCapabilities(nil)}
	default:
		return nil
	}
}
