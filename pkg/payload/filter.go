package payload

import (
	"encoding/json"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/manifest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/runlevel/runlevel/pkg/printable"
)

// A Filter chooses manifests of a payload. Its zero value takes all of them:
// each field filters only when it is set.
type Filter struct {
	// Exclude leaves out what is annotated exclude.release.openshift.io/NAME.
	Exclude string
	// Profile takes only what is annotated include.release.openshift.io/PROFILE.
	Profile string
	// FeatureSet takes what names it in release.openshift.io/feature-set, and what
	// has no such annotation. "Default" is the set of a cluster that has chosen none.
	FeatureSet string
	// FeatureGates are those that are on, for release.openshift.io/feature-gate.
	// Nil takes everything; an empty list is a cluster where all are off.
	FeatureGates []string
	// MajorVersion is the cluster's, for release.openshift.io/major-version. That
	// of the release is taken when it is 0.
	MajorVersion uint64
	// Capabilities are those that are known and those that are on, for
	// capability.openshift.io/name. See ParseCapabilities.
	Capabilities *configv1.ClusterVersionCapabilitiesStatus
	// AllowUnknownCapabilities takes what names a capability that is not known.
	AllowUnknownCapabilities bool
	// Overrides leave out objects that an administrator manages.
	Overrides []configv1.ComponentOverride
}

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

// subject is what library-go decides about: the head of the object. It refuses
// what has no annotations before it asks any filter, so it is always given some.
func (f Filter) subject(m *Manifest) (*manifest.Manifest, error) {
	annotations := map[string]any{}
	for key, value := range m.annotations() {
		annotations[key] = value
	}
	metadata := map[string]any{"annotations": annotations}
	head := map[string]any{"metadata": metadata}
	if len(f.Overrides) == 0 {
		return &manifest.Manifest{GVK: m.object.GroupVersionKind(), Obj: &unstructured.Unstructured{Object: head}}, nil
	}
	// Overrides are about objects by name, which the library only knows of what it has read.
	id := m.ID()
	head["apiVersion"], head["kind"] = m.object.GetAPIVersion(), id.Kind
	metadata["namespace"], metadata["name"] = id.Namespace, id.Name
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	subject := &manifest.Manifest{}
	return subject, subject.UnmarshalJSON(text)
}

// include asks library-go.
func (f Filter) include(subject *manifest.Manifest) error {
	var featureSet *string
	switch f.FeatureSet {
	case "":
	case "Default":
		featureSet = new("")
	default:
		featureSet = &f.FeatureSet
	}
	var gates sets.Set[string]
	if f.FeatureGates != nil {
		gates = sets.New(f.FeatureGates...)
	}
	return subject.IncludeAllowUnknownCapabilities(set(f.Exclude), featureSet, set(f.Profile), f.Capabilities,
		f.Overrides, gates, set(f.MajorVersion), f.AllowUnknownCapabilities)
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
		{ByCapabilities, Filter{Capabilities: f.Capabilities, AllowUnknownCapabilities: f.AllowUnknownCapabilities}},
		{ByOverrides, Filter{Overrides: f.Overrides}},
	}
}

// FilterNames returns the names that annotations of manifests give to a filter, sorted: the profiles that
// they are for, for example. Manifests that the filter leaves out count, too.
func (p *Payload) FilterNames(filter FilterName) []string {
	var names []string
	for _, m := range p.All() {
		switch filter {
		case ByExclude:
			names = append(names, annotationsBelow(m, excludePrefix)...)
		case ByProfile:
			names = append(names, annotationsBelow(m, includePrefix)...)
		case ByCapabilities:
			names = append(names, annotationList(m, capabilityAnnotation, "+")...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

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
