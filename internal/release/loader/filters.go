package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Check refuses filters with names that no manifest of the releases has (a nil release is skipped): a
// misspelt name would apply manifests that it should leave out, or the reverse. The error begins with the
// name of the filter.
//
// Feature gates are not checked: a cluster has many that a release does not contain.
func (o Options) Check(releases ...*payload.Payload) error {
	releases = slices.DeleteFunc(releases, func(p *payload.Payload) bool { return p == nil })
	filter := o.Payload.Filter
	var enabled []string
	if filter.Capabilities != nil {
		enabled = payload.Names(filter.Capabilities.EnabledCapabilities)
	}
	for _, item := range []struct {
		name  payload.FilterName
		given []string
		known []string // names that OpenShift knows
	}{
		{payload.ByExclude, []string{filter.Exclude}, nil},
		{payload.ByProfile, []string{filter.Profile}, Profiles()},
		{payload.ByFeatureSet, []string{filter.FeatureSet}, payload.FeatureSets()},
		{payload.ByCapabilities, enabled, append(payload.CapabilityBaselines(), payload.KnownCapabilities()...)},
	} {
		known := item.known
		for _, release := range releases {
			if item.name != payload.ByFeatureSet { // no release adds feature sets
				known = append(known, release.FilterNames(item.name)...)
			}
		}
		for _, name := range item.given {
			if name != "" && !slices.Contains(known, name) {
				return fmt.Errorf("%s: no manifest of the release names %q: %s", item.name, name, suggest(known))
			}
		}
	}
	for _, selector := range o.Unmanaged {
		if err := selector.Check(releases...); err != nil {
			return fmt.Errorf("unmanaged %s: %w", selector, err)
		}
	}
	return nil
}

// Profiles returns the cluster profiles of OpenShift.
func Profiles() []string {
	return []string{"self-managed-high-availability", "single-node-developer", "hypershift", "ibm-cloud-managed"}
}

// maxSuggested limits the names that a message suggests.
const maxSuggested = 8

// suggest lists names that are similar to a value.
func suggest(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	rest := ""
	if more := len(names) - maxSuggested; more > 0 {
		names, rest = names[:maxSuggested], fmt.Sprintf(" or %d more", more)
	}
	if len(names) == 0 {
		return "leave it out"
	}
	return printable.Line("use " + strings.Join(names, ", ") + rest)
}

// A Selector names an object of a release as KIND[.GROUP]/[NAMESPACE/]NAME. A missing group or namespace
// matches any; "KIND./NAME" selects the core group.
type Selector struct {
	text     string
	ID       kinds.ID
	anyGroup bool
}

// ParseSelector reads a selector.
func ParseSelector(text string) (Selector, error) {
	parts := strings.Split(text, "/")
	s := Selector{text: text, ID: kinds.ID{Name: parts[len(parts)-1]}}
	var hasGroup bool
	s.ID.Kind, s.ID.Group, hasGroup = strings.Cut(parts[0], ".")
	s.anyGroup = !hasGroup
	if len(parts) == 3 {
		s.ID.Namespace = parts[1]
	}
	if len(parts) < 2 || len(parts) > 3 || s.ID.Kind == "" || s.ID.Name == "" {
		return s, fmt.Errorf("%q is not KIND[.GROUP]/[NAMESPACE/]NAME, as in Deployment.apps/my-namespace/my-name",
			text)
	}
	return s, nil
}

func (s Selector) String() string { return s.text }

// find returns the objects of a release that a selector matches.
func (s Selector) find(release *payload.Payload) []kinds.ID {
	return objectsOf(release, s.Matches)
}

// Matches reports whether a selector matches an object.
func (s Selector) Matches(id kinds.ID) bool {
	isGroup := s.anyGroup || id.Group == s.ID.Group
	isNamespace := id.Namespace == s.ID.Namespace || id.Namespace == "" || s.ID.Namespace == ""
	return id.Name == s.ID.Name && strings.EqualFold(id.Kind, s.ID.Kind) && isGroup && isNamespace
}

// overrides returns the objects of a release that selectors match. Check refuses a selector that matches
// none of its objects, or several.
func overrides(selectors []Selector, release *payload.Payload) []configv1.ComponentOverride {
	var all []configv1.ComponentOverride
	for _, selector := range selectors {
		for _, id := range selector.find(release) {
			all = append(all, configv1.ComponentOverride{
				Group:     id.Group,
				Kind:      id.Kind,
				Namespace: id.Namespace,
				Name:      id.Name,
				Unmanaged: true,
			})
		}
	}
	return all
}

// objectsOf returns the matching objects of a release, in order, each once.
func objectsOf(release *payload.Payload, fits func(kinds.ID) bool) []kinds.ID {
	var found []kinds.ID
	for _, manifest := range release.All() {
		if id := manifest.ID(); fits(id) {
			found = append(found, id)
		}
	}
	slices.SortFunc(found, kinds.Compare)
	return slices.Compact(found)
}

// Check refuses a selector that matches no object of any of the releases, or several of one, or one that a
// tombstone deletes together with its namespace or definition.
func (s Selector) Check(releases ...*payload.Payload) error {
	isFound := false
	for _, release := range releases {
		found := s.find(release)
		if len(found) > 1 {
			return errors.New("it matches several objects of the release: " + suggest(formatSelectors(found)))
		}
		for _, id := range found {
			isFound = true
			if deleted, isDeleted := deletedWith(id, release); isDeleted {
				return fmt.Errorf("the release deletes %s, and %s with it: leave out %s, too", deleted, id,
					formatSelectors([]kinds.ID{deleted})[0])
			}
		}
	}
	if isFound {
		return nil
	}
	return errors.New("the release has no such object: " + suggest(formatSelectors(s.similarObjects(releases))))
}

// similarObjects returns the objects of the releases that have the selector's name, or else its kind.
func (s Selector) similarObjects(releases []*payload.Payload) []kinds.ID {
	for _, fits := range []func(kinds.ID) bool{
		func(id kinds.ID) bool { return strings.EqualFold(id.Name, s.ID.Name) },
		func(id kinds.ID) bool { return strings.EqualFold(id.Kind, s.ID.Kind) },
	} {
		var found []kinds.ID
		for _, release := range releases {
			found = append(found, objectsOf(release, fits)...)
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// deletedWith returns the Namespace or the definition that a tombstone of the release deletes, if an object
// is deleted with it.
func deletedWith(id kinds.ID, release *payload.Payload) (kinds.ID, bool) {
	for _, manifest := range release.Manifests {
		deleted := manifest.ID()
		isNamespace := deleted.GroupKind() == kinds.Namespace && deleted.Name == id.Namespace
		isDefinition := deleted.GroupKind() == kinds.CustomResourceDefinition &&
			deleted.Name == kinds.DefinitionName(id.GroupKind())
		if manifest.IsTombstone() && (isNamespace || isDefinition) {
			return deleted, true
		}
	}
	return kinds.ID{}, false
}

// formatSelectors returns objects as selectors. The core group is written as "KIND." where an object of another
// group has the same kind.
func formatSelectors(objects []kinds.ID) []string {
	var all []string
	for _, id := range objects {
		isShared := slices.ContainsFunc(objects, func(other kinds.ID) bool {
			return other.Kind == id.Kind && other.Group != id.Group
		})
		kind := id.Kind
		if id.Group != "" || isShared {
			kind += "." + id.Group
		}
		if id.Namespace != "" {
			kind += "/" + id.Namespace
		}
		all = append(all, kind+"/"+id.Name)
	}
	return all
}
