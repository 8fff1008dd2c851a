package payload

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/manifest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Filter selects manifests of a payload. Its zero value includes all manifests:
// each field filters only when it is set.
type Filter struct {
	// Exclude leaves out manifests with the annotation exclude.release.openshift.io/NAME.
	Exclude string `json:"exclude,omitempty"`
	// Profile includes only manifests with the annotation include.release.openshift.io/PROFILE.
	Profile string `json:"profile,omitempty"`
	// FeatureSet includes manifests with it in release.openshift.io/feature-set, and those
	// without the annotation. Empty includes everything, or is DefaultFeatureSet if there is a profile.
	FeatureSet string `json:"featureSet,omitempty"`
	// FeatureGates are the enabled gates, for release.openshift.io/feature-gate.
	// An empty list is a cluster with none enabled. Nil includes everything, or is an empty list if there is a profile.
	FeatureGates []string `json:"featureGates,omitzero"`
	// MajorVersion is the major version of the cluster, for release.openshift.io/major-version; the version of the
	// release if it is 0.
	MajorVersion uint64 `json:"majorVersion,omitempty"`
	// Capabilities are the known and the enabled capabilities, for capability.openshift.io/name. See ParseCapabilities.
	Capabilities *configv1.ClusterVersionCapabilitiesStatus `json:"capabilities,omitempty"`
	// Overrides leave out objects that an administrator manages.
	Overrides []configv1.ComponentOverride `json:"overrides,omitempty"`
}

// DefaultFeatureSet is the feature set of a cluster without an explicit one.
const DefaultFeatureSet = "Default"

// An Exclusion is a manifest that a filter left out.
type Exclusion struct {
	Manifest *Manifest
	Filter   FilterName
	Reason   string // wording of OpenShift's own library
}

// A FilterName is the filter that left a manifest out.
type FilterName string

// The filters, in the order in which they are evaluated.
const (
	ByExclude      FilterName = "exclude"
	ByFeatureSet   FilterName = "feature-set"
	ByFeatureGates FilterName = "feature-gates"
	ByMajorVersion FilterName = "major-version"
	ByProfile      FilterName = "profile"
	ByCapabilities FilterName = "capabilities"
	ByOverrides    FilterName = "overrides"
	// ByHook leaves out hooks of other tools that are not of an apply, in a release without numbered files.
	ByHook FilterName = "hook"
)

// exclusion returns the exclusion of a manifest; nil if the filter includes the manifest. If the library can't read the
// manifest, exclusion fails.
func (f Filter) exclusion(m *Manifest) (*Exclusion, error) {
	subject, err := f.subject(m)
	if err != nil {
		return nil, err
	}
	reason := f.include(subject)
	if reason == nil {
		return nil, nil
	}
	for _, single := range f.single() {
		if reason := single.filter.include(subject); reason != nil {
			return &Exclusion{Manifest: m, Filter: single.name, Reason: reason.Error()}, nil
		}
	}
	// Only feature sets and feature gates together exclude a manifest that neither does alone.
	return &Exclusion{Manifest: m, Filter: ByFeatureGates, Reason: reason.Error()}, nil
}

// head returns the part of a manifest that library-go filters: kind and annotations. The library refuses a manifest
// without annotations before it evaluates any filter, so the head always has some.
func (m *Manifest) head() *manifest.Manifest {
	object := m.object
	if m.object.GetAnnotations() == nil { // or those that are no strings, which were reported
		object = &unstructured.Unstructured{
			Object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}},
		}
	}
	return &manifest.Manifest{GVK: m.GroupVersionKind(), Obj: object}
}

// subject returns the head of a manifest, decoded by the library if there are overrides: they match objects by name.
func (f Filter) subject(m *Manifest) (*manifest.Manifest, error) {
	head := m.head()
	if len(f.Overrides) == 0 {
		return head, nil
	}
	id := m.ID()
	metadata := map[string]any{"namespace": id.Namespace, "name": id.Name, "annotations": head.Obj.GetAnnotations()}
	text, err := json.Marshal(map[string]any{
		"apiVersion": m.object.GetAPIVersion(),
		"kind":       id.Kind,
		"metadata":   metadata,
	})
	if err != nil {
		return nil, err
	}
	read := &manifest.Manifest{}
	return read, read.UnmarshalJSON(text)
}

// include returns library-go's reason to leave a manifest out; nil if it is included.
func (f Filter) include(subject *manifest.Manifest) error {
	var featureSet *string
	switch f.FeatureSet {
	case "":
	case DefaultFeatureSet:
		featureSet = new("")
	default:
		featureSet = &f.FeatureSet
	}
	var gates sets.Set[string]
	if f.FeatureGates != nil {
		gates = sets.New(f.FeatureGates...)
	}
	return subject.Include(set(f.Exclude), featureSet, set(f.Profile), f.Capabilities, f.Overrides, gates,
		set(f.MajorVersion))
}

// set returns nil for a zero value, which does not filter.
func set[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// A singleFilter is one of the filters alone.
type singleFilter struct {
	name   FilterName
	filter Filter
}

// single returns each field of a filter as a separate filter, to find the field that excludes a manifest.
func (f Filter) single() []singleFilter {
	return []singleFilter{
		{ByExclude, Filter{Exclude: f.Exclude}},
		{ByFeatureSet, Filter{FeatureSet: f.FeatureSet}},
		{ByFeatureGates, Filter{FeatureGates: f.FeatureGates}},
		{ByMajorVersion, Filter{MajorVersion: f.MajorVersion}},
		{ByProfile, Filter{Profile: f.Profile}},
		{ByCapabilities, Filter{Capabilities: f.Capabilities}},
		{ByOverrides, Filter{Overrides: f.Overrides}},
	}
}

// isSet reports whether one of the filters is set.
func (f Filter) isSet(name FilterName) bool {
	return slices.ContainsFunc(f.single(), func(filter singleFilter) bool {
		return filter.name == name && !reflect.ValueOf(filter.filter).IsZero()
	})
}

// The annotations that filters evaluate.
const (
	CapabilityAnnotation   = manifest.CapabilityAnnotation
	IncludePrefix          = "include.release.openshift.io/"
	excludePrefix          = "exclude.release.openshift.io/"
	FeatureSetAnnotation   = "release.openshift.io/feature-set"
	FeatureGateAnnotation  = "release.openshift.io/feature-gate"
	MajorVersionAnnotation = "release.openshift.io/major-version"
)

// namesFor returns the names in the annotations of a manifest for a filter, sorted: its profiles, for
// example.
func (m *Manifest) namesFor(filter FilterName) []string {
	switch filter {
	case ByExclude:
		return m.annotationsBelow(excludePrefix)
	case ByProfile:
		return m.annotationsBelow(IncludePrefix)
	case ByFeatureSet:
		return m.annotationList(FeatureSetAnnotation, ",")
	case ByFeatureGates:
		return m.annotationList(FeatureGateAnnotation, ",")
	case ByMajorVersion:
		return m.annotationList(MajorVersionAnnotation, ",")
	case ByCapabilities:
		return m.annotationList(CapabilityAnnotation, "+")
	default:
		return nil
	}
}

// annotationsBelow returns the suffixes of annotations with a prefix.
func (m *Manifest) annotationsBelow(prefix string) []string {
	var names []string
	for key := range m.annotations() {
		if name, found := strings.CutPrefix(key, prefix); found {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *Manifest) annotationList(annotation, separator string) []string {
	value := m.annotation(annotation)
	if value == "" {
		return nil
	}
	names := strings.Split(value, separator)
	slices.Sort(names)
	return names
}

// FilterNames returns the names in the annotations of all manifests for a filter. Excluded manifests
// count, too.
func (p *Payload) FilterNames(filter FilterName) []string { return collect(p.All(), filter) }

// All returns the included manifests, followed by the tests and the excluded ones.
func (p *Payload) All() []*Manifest {
	all := slices.Concat(p.Manifests, p.Tests)
	for _, exclusion := range p.Excluded {
		all = append(all, exclusion.Manifest)
	}
	return all
}

// Why returns the exclusion in one line.
func (e Exclusion) Why() string { return printable.Line(fmt.Sprintf("%s: %s", e.Filter, e.Reason)) }

// include adds a manifest to the release, or to those that are left out.
func (r *reader) include(m *Manifest) {
	exclusion, err := r.payload.Filter.exclusion(m)
	leftOut := m.foreign.leftOut(m)
	switch {
	case err != nil:
		r.report(m.problem(Malformed, "%s", err))
	case exclusion != nil:
		r.payload.Excluded = append(r.payload.Excluded, *exclusion)
		if strings.HasPrefix(exclusion.Reason, "unrecognized ") {
			r.report(m.problem(Unrecognized, "it is left out: %s", exclusion.Reason))
		}
	case leftOut != nil:
		r.payload.Excluded = append(r.payload.Excluded, *leftOut)
		r.report(m.problem(Suspicious, "it is left out: %s", leftOut.Reason))
	default:
		if err := r.options.Injection.inject(m); err != nil {
			r.report(m.problem(Malformed, "%s", err))
		}
		r.payload.include(m)
	}
}
