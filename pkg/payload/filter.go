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

// A Filter chooses manifests of a payload. Its zero value takes all of them:
// each field filters only when it is set.
type Filter struct {
	// Exclude leaves out what is annotated exclude.release.openshift.io/NAME.
	Exclude string
	// Profile takes only what is annotated include.release.openshift.io/PROFILE.
	Profile string
	// FeatureSet takes what names it in release.openshift.io/feature-set, and what
	// has no such annotation. Empty takes everything, or with a profile DefaultFeatureSet.
	FeatureSet string
	// FeatureGates are those that are on, for release.openshift.io/feature-gate.
	// An empty list is a cluster where all are off. Nil takes everything, or with a profile is an empty list.
	FeatureGates []string
	// MajorVersion is the cluster's, for release.openshift.io/major-version. That
	// of the release is taken when it is 0.
	MajorVersion uint64
	// Capabilities are those that are known and those that are on, for
	// capability.openshift.io/name. See ParseCapabilities.
	Capabilities *configv1.ClusterVersionCapabilitiesStatus
	// Overrides leave out objects that an administrator manages.
	Overrides []configv1.ComponentOverride
}

// DefaultFeatureSet is the feature set of a cluster that has chosen none.
const DefaultFeatureSet = "Default"

// An Exclusion is a manifest that a filter left out.
type Exclusion struct {
	Manifest *Manifest
	Filter   FilterName
	Reason   string // in the words of OpenShift's own library
}

// A FilterName is the filter that left a manifest out.
type FilterName string

// The filters, in the order in which they are asked.
const (
	ByExclude      FilterName = "exclude"
	ByFeatureSet   FilterName = "feature-set"
	ByFeatureGates FilterName = "feature-gates"
	ByMajorVersion FilterName = "major-version"
	ByProfile      FilterName = "profile"
	ByCapabilities FilterName = "capabilities"
	ByOverrides    FilterName = "overrides"
)

// exclusion says why a filter leaves a manifest out; nil if it does not. The error
// is for a manifest that the library can't read.
func (f Filter) exclusion(m *Manifest) (*Exclusion, error) {
	subject, err := f.subject(m)
	if err != nil {
		return nil, err
	}
	why := f.include(subject)
	if why == nil {
		return nil, nil
	}
	for _, single := range f.single() {
		if why := single.filter.include(subject); why != nil {
			return &Exclusion{Manifest: m, Filter: single.name, Reason: why.Error()}, nil
		}
	}
	// Only feature sets and feature gates together refuse what neither does.
	return &Exclusion{Manifest: m, Filter: ByFeatureGates, Reason: why.Error()}, nil
}

// head is what library-go decides about: kind and annotations. It refuses what has no annotations before it asks any
// filter, so it is always given some.
func (m *Manifest) head() *manifest.Manifest {
	object := m.object
	if m.annotations() == nil {
		object = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}}}
	}
	return &manifest.Manifest{GVK: m.GroupVersionKind(), Obj: object}
}

// subject is the head of a manifest. Overrides are about objects by name, which the library only knows of what it has read.
func (f Filter) subject(m *Manifest) (*manifest.Manifest, error) {
	head := m.head()
	if len(f.Overrides) == 0 {
		return head, nil
	}
	id := m.ID()
	metadata := map[string]any{"namespace": id.Namespace, "name": id.Name, "annotations": head.Obj.GetAnnotations()}
	text, err := json.Marshal(map[string]any{"apiVersion": m.object.GetAPIVersion(), "kind": id.Kind, "metadata": metadata})
	if err != nil {
		return nil, err
	}
	read := &manifest.Manifest{}
	return read, read.UnmarshalJSON(text)
}

// include asks library-go.
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
	return subject.Include(set(f.Exclude), featureSet, set(f.Profile), f.Capabilities, f.Overrides, gates, set(f.MajorVersion))
}

// set returns nil for a zero value: a filter that was not chosen.
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

// single returns each part of a filter as a filter of its own, to find the one that excludes a manifest.
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

// isSet reports whether one of the filters is in use.
func (f Filter) isSet(name FilterName) bool {
	return slices.ContainsFunc(f.single(), func(filter singleFilter) bool { return filter.name == name && !reflect.ValueOf(filter.filter).IsZero() })
}

// The annotations that filters look at.
const (
	CapabilityAnnotation   = manifest.CapabilityAnnotation
	IncludePrefix          = "include.release.openshift.io/"
	excludePrefix          = "exclude.release.openshift.io/"
	FeatureSetAnnotation   = "release.openshift.io/feature-set"
	FeatureGateAnnotation  = "release.openshift.io/feature-gate"
	MajorVersionAnnotation = "release.openshift.io/major-version"
)

// namesFor returns the names that the annotations of a manifest give to a filter, sorted: the profiles that it is for, for
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

// annotationsBelow returns the names behind a prefix of annotations.
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
	value := m.annotations()[annotation]
	if value == "" {
		return nil
	}
	names := strings.Split(value, separator)
	slices.Sort(names)
	return names
}

// FilterNames returns the names that the manifests of a release give to a filter. Manifests that the filter leaves out
// count, too.
func (p *Payload) FilterNames(filter FilterName) []string { return collect(p.All(), filter) }

// All returns the manifests that the filter chose, and behind them those that it left out.
func (p *Payload) All() []*Manifest {
	all := slices.Clone(p.Manifests)
	for _, left := range p.Excluded {
		all = append(all, left.Manifest)
	}
	return all
}

// Why is the exclusion in one line.
func (e Exclusion) Why() string { return printable.Line(fmt.Sprintf("%s: %s", e.Filter, e.Reason)) }
