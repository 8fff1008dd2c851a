package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// checkFilters refuses values of the flags that choose manifests if no manifest of the releases
// (nil stands for none) has what they name: a misspelt value would apply what it is to leave out, or
// leave out what is to be applied.
func (f *releaseFlags) checkFilters(releases ...*payload.Payload) error {
	releases = slices.DeleteFunc(releases, func(p *payload.Payload) bool { return p == nil })
	if err := f.checkNames(releases); err != nil {
		return misuse{err}
	}
	for _, value := range f.unmanaged {
		if err := checkUnmanaged(value, releases); err != nil {
			return misuse{fmt.Errorf("--unmanaged %s: %w", value, err)}
		}
	}
	return nil
}

// checkNotEmpty returns an error if the filters leave out every manifest of a release.
func checkNotEmpty(release *payload.Payload) error {
	if len(release.Manifests) > 0 || len(release.Excluded) == 0 {
		return nil
	}
	return misuse{errors.New(`the filters leave nothing of the release: "runlevel render --explain" says why`)}
}

// warnIfEmpty prints the error of checkNotEmpty, for verbs that write nothing to a cluster.
func warnIfEmpty(out io.Writer, release *payload.Payload) {
	if err := checkNotEmpty(release); err != nil {
		warn(out, []error{err})
	}
}

// checkNames refuses names that neither OpenShift has nor a manifest of the releases. Feature gates
// are not checked: a cluster has many that a release says nothing of.
func (f *releaseFlags) checkNames(releases []*payload.Payload) error {
	for _, flag := range []struct {
		filter payload.FilterName // which is the name of the flag, too
		given  []string
		known  []string // by OpenShift
	}{
		{payload.ByExclude, []string{f.exclude}, nil},
		{payload.ByProfile, []string{f.profile}, profiles()},
		{payload.ByFeatureSet, []string{f.featureSet}, featureSets()}, // to which no release can add any
		{payload.ByCapabilities, strings.Split(f.capabilities, ","), capabilities()},
	} {
		known := flag.known
		for _, release := range releases {
			known = append(known, release.Named(flag.filter)...)
		}
		for _, name := range flag.given {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(known, name) {
				return fmt.Errorf("--%s: no manifest of the release names %q: %s", flag.filter, name, offer(known))
			}
		}
	}
	return nil
}

// capabilities are the names and the baselines of OpenShift.
func capabilities() []string {
	names := payload.CapabilityBaselines()
	for _, name := range configv1.KnownClusterVersionCapabilities {
		names = append(names, string(name))
	}
	return names
}

// mostOffered is how many names a message lists that a value could have meant.
const mostOffered = 8

// offer lists names that a value could have meant.
func offer(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	rest := ""
	if more := len(names) - mostOffered; more > 0 {
		names, rest = names[:mostOffered], fmt.Sprintf(" or %d more", more)
	}
	if len(names) == 0 {
		return "leave it out"
	}
	return printable.Line("use " + strings.Join(names, ", ") + rest)
}

// overrides returns the objects of a release that --unmanaged names. Values that name none of its
// objects, or several, are for checkUnmanaged to refuse.
func (f *releaseFlags) overrides(release *payload.Payload) []configv1.ComponentOverride {
	var all []configv1.ComponentOverride
	for _, value := range f.unmanaged {
		for _, id := range meantBy(value, release) {
			all = append(all, configv1.ComponentOverride{Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, Unmanaged: true})
		}
	}
	return all
}

// meantBy returns the objects of a release that fit a value of --unmanaged. A group or namespace
// that is left out fits any; "KIND./NAME" is of the core group.
func meantBy(value string, release *payload.Payload) []kinds.ID {
	object, _ := parseOverride(value) // whose error was told before anything was read
	kind, _, _ := strings.Cut(value, "/")
	return objectsOf(release, func(id kinds.ID) bool {
		isGroup := id.Group == object.Group || !strings.Contains(kind, ".")
		isNamespace := id.Namespace == object.Namespace || id.Namespace == "" || object.Namespace == ""
		return id.Name == object.Name && strings.EqualFold(id.Kind, object.Kind) && isGroup && isNamespace
	})
}

// objectsOf returns the objects of a release that fit, in order, each once.
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

// checkUnmanaged refuses a value of --unmanaged that names no object of any of the releases, or
// several of one, or one that a tombstone deletes together with its namespace or definition.
func checkUnmanaged(value string, releases []*payload.Payload) error {
	isFound := false
	for _, release := range releases {
		found := meantBy(value, release)
		if len(found) > 1 {
			return errors.New("it fits several objects of the release: " + offer(written(found)))
		}
		for _, id := range found {
			isFound = true
			if taker, isTaken := takenAlong(id, release); isTaken {
				return fmt.Errorf("the release deletes %s, and %s with it: add --unmanaged %s", taker, id, written([]kinds.ID{taker})[0])
			}
		}
	}
	if isFound {
		return nil
	}
	object, _ := parseOverride(value)
	var near []kinds.ID
	for _, release := range releases {
		near = append(near, objectsOf(release, func(id kinds.ID) bool { return strings.EqualFold(id.Name, object.Name) })...)
	}
	if len(near) == 0 {
		for _, release := range releases {
			near = append(near, objectsOf(release, func(id kinds.ID) bool { return strings.EqualFold(id.Kind, object.Kind) })...)
		}
	}
	return errors.New("the release has no such object: " + offer(written(near)))
}

// takenAlong returns the Namespace or the definition that a tombstone of the release deletes, if an
// object goes with it.
func takenAlong(id kinds.ID, release *payload.Payload) (kinds.ID, bool) {
	plural, _ := meta.UnsafeGuessKindToResource(id.GroupKind().WithVersion(""))
	for _, manifest := range release.Manifests {
		taker := manifest.ID()
		isNamespace := taker.GroupKind() == kinds.Namespace && taker.Name == id.Namespace
		isDefinition := taker.GroupKind() == kinds.CustomResourceDefinition && taker.Name == plural.GroupResource().String()
		if manifest.IsTombstone() && (isNamespace || isDefinition) {
			return taker, true
		}
	}
	return kinds.ID{}, false
}

// written returns objects as --unmanaged takes them. The core group is written as "KIND." where an
// object of another group has the same kind.
func written(objects []kinds.ID) []string {
	var all []string
	for _, id := range objects {
		isShared := slices.ContainsFunc(objects, func(other kinds.ID) bool { return other.Kind == id.Kind && other.Group != id.Group })
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
