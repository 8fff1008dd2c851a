package payload

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/manifest"
)

// CommonCluster returns a filter of a cluster on which two manifests of a release are both
// applied, and whether there is one. If a and b are the same manifest, it reports whether
// the manifest is applied on any cluster. Settings of f apply to all clusters.
func (f Filter) CommonCluster(a, b *Manifest) (Filter, bool) {
	return f.findCluster([]*Manifest{a, b}, nil, append(a.gates(isRequiredGate), b.gates(isRequiredGate)...))
}

// ClusterWithout returns a filter of a cluster on which a manifest is applied, and none of the others.
func (f Filter) ClusterWithout(m *Manifest, others []*Manifest) (Filter, bool) {
	fewest := m.gates(isRequiredGate)
	if m.namesGates() || slices.ContainsFunc(others, (*Manifest).namesGates) {
		fewest = append([]string{}, fewest...) // empty: unlike nil, it disables all
	}
	if cluster, found := f.findCluster([]*Manifest{m}, others, fewest); found {
		return cluster, true
	}
	most := slices.Clone(fewest)
	for _, other := range others {
		most = append(most, other.gates(isExcludedGate)...)
	}
	return f.findCluster([]*Manifest{m}, others, most)
}

// findCluster finds a cluster with some feature gates enabled on which some manifests are applied, and none of the
// others.
func (f Filter) findCluster(must, others []*Manifest, gates []string) (Filter, bool) {
	manifests, out := subjects(must), subjects(others)
	for cluster := range f.clusters(must, others, gates) {
		isIn := func(subject *manifest.Manifest) bool { return !cluster.leavesOut(subject) }
		if !slices.ContainsFunc(manifests, cluster.leavesOut) && !slices.ContainsFunc(out, isIn) {
			return cluster, true
		}
	}
	return Filter{}, false
}

// clusters yields the clusters that the annotations of some manifests distinguish, with some feature gates
// enabled, as long as each filter alone includes all manifests that must be included. All capabilities are
// enabled: a disabled one never makes two manifests apply together.
func (f Filter) clusters(must, others []*Manifest, gates []string) iter.Seq[Filter] {
	manifests := slices.Concat(must, others)
	profiles, sets, excludes, majors := []string{f.Profile}, []string{f.FeatureSet}, []string{f.Exclude},
		[]uint64{f.MajorVersion}
	if f.Profile == "" {
		profiles = orNone(collect(manifests, ByProfile))
	}
	if f.Exclude == "" {
		excludes = append(excludes, collect(manifests, ByExclude)...)
	}
	if f.FeatureSet == "" {
		sets = orNone(withOthers(collect(manifests, ByFeatureSet)))
	}
	if f.MajorVersion == 0 {
		majors = orNone(withNext(numbers(collect(manifests, ByMajorVersion))))
	}
	if f.FeatureGates != nil {
		gates = f.FeatureGates
	}
	excludes = accepting(must, excludes, func(exclude string) Filter { return Filter{Exclude: exclude} })
	profiles = accepting(must, profiles, func(profile string) Filter { return Filter{Profile: profile} })
	sets = accepting(must, sets, func(set string) Filter { return Filter{FeatureSet: set} })
	majors = accepting(must, majors, func(major uint64) Filter { return Filter{MajorVersion: major} })
	return func(yield func(Filter) bool) {
		for _, exclude := range excludes {
			for _, profile := range profiles {
				for _, set := range sets {
					for _, major := range majors {
						if !yield(Filter{
							Exclude:      exclude,
							Profile:      profile,
							FeatureSet:   set,
							FeatureGates: gates,
							MajorVersion: major,
						}) {
							return
						}
					}
				}
			}
		}
	}
}

// accepting returns the values of one filter that include all manifests.
func accepting[T any](manifests []*Manifest, values []T, filter func(T) Filter) []T {
	subjects := subjects(manifests)
	return slices.DeleteFunc(slices.Clone(values), func(value T) bool {
		return slices.ContainsFunc(subjects, filter(value).leavesOut)
	})
}

// subjects returns manifests for library-go's filters: only overrides need more than heads.
func subjects(manifests []*Manifest) []*manifest.Manifest {
	found := make([]*manifest.Manifest, len(manifests))
	for i, m := range manifests {
		found[i] = m.head()
	}
	return found
}

func (f Filter) leavesOut(subject *manifest.Manifest) bool { return f.include(subject) != nil }

// collect returns the names in the annotations of manifests for a filter, each once.
func collect(manifests []*Manifest, filter FilterName) []string {
	var found []string
	for _, m := range manifests {
		for _, name := range m.namesFor(filter) {
			if !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// withOthers adds the other feature sets, if any is named.
func withOthers(sets []string) []string {
	if len(sets) == 0 {
		return nil
	}
	others := []string{"Default", string(configv1.CustomNoUpgrade), string(configv1.TechPreviewNoUpgrade),
		string(configv1.DevPreviewNoUpgrade)}
	return slices.Concat(others[:1], sets, others[1:])
}

// withNext adds a further major version, if any is named.
func withNext(majors []uint64) []uint64 {
	if len(majors) == 0 {
		return nil
	}
	return append(majors, slices.Max(majors)+1)
}

// gates returns the feature gates in a manifest's annotation: those that must be enabled or those
// that must be disabled.
func (m *Manifest) gates(which func(gate string) bool) []string {
	var found []string
	for _, gate := range m.namesFor(ByFeatureGates) {
		if gate = strings.TrimSpace(gate); gate != "" && which(gate) {
			found = append(found, strings.TrimPrefix(gate, "-"))
		}
	}
	return found
}

func (m *Manifest) namesGates() bool { return m.annotation(FeatureGateAnnotation) != "" }

func isExcludedGate(gate string) bool { return strings.HasPrefix(gate, "-") }
func isRequiredGate(gate string) bool { return !isExcludedGate(gate) }

// numbers returns the major versions of a list, required or excluded.
func numbers(versions []string) []uint64 {
	var found []uint64
	for _, version := range versions {
		if number, err := strconv.ParseUint(strings.TrimPrefix(version, "-"), 10, 64); err == nil {
			found = append(found, number)
		}
	}
	return found
}

// orNone returns the values of a filter to try. If the payload has none, it returns the zero value for no filter.
func orNone[T comparable](values []T) []T {
	if len(values) == 0 {
		return make([]T, 1)
	}
	return values
}

// String returns the filter in the words of the flags: "profile X, feature set Y".
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
	if f.FeatureGates != nil && len(f.FeatureGates) == 0 {
		parts = append(parts, "no feature gates")
	}
	add("exclude", f.Exclude)
	if f.MajorVersion != 0 {
		add("major version", fmt.Sprint(f.MajorVersion))
	}
	return strings.Join(parts, ", ")
}
