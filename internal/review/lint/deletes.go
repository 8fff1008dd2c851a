package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// These rules are about the delete annotation, and about objects that a payload has
// more than once.

// checkMisspeltDelete looks for keys that were meant to be the delete annotation.
func checkMisspeltDelete(s *subject, r *reporter) {
	for _, m := range s.manifests {
		for _, key := range sortedKeys(m.annotations) {
			if key != payload.DeleteAnnotation && looksLikeDelete(key) {
				instead := fmt.Sprintf("write %s, or drop it", payload.DeleteAnnotation)
				if m.isTombstone {
					instead = fmt.Sprintf("drop it, since %s is already set", payload.DeleteAnnotation)
				}
				r.field(m, annotation(key), "the annotation %q deletes nothing: %s", key, instead)
			}
		}
	}
}

// looksLikeDelete reports whether a key is a misspelling of the delete annotation: a few letters
// are wrong, or the name is a word for deletion and the domain is similar.
func looksLikeDelete(key string) bool {
	if printable.EditDistance(strings.ToLower(strings.TrimSpace(key)), payload.DeleteAnnotation) <= 2 {
		return true
	}
	domain, name, hasDomain := strings.Cut(strings.ToLower(key), "/")
	if !hasDomain || !slices.Contains([]string{"delete", "deleted", "deletes", "deletion", "remove", "removed"}, name) {
		return false
	}
	home, _, _ := strings.Cut(payload.DeleteAnnotation, "/")
	return printable.EditDistance(domain, home) <= 4 || strings.HasSuffix(domain, "."+home) ||
		slices.Contains([]string{"openshift.io", "runlevel.dev", "release.runlevel.dev"}, domain)
}

// checkMisplacedDelete looks for the annotation in all places but the object's annotations.
func checkMisplacedDelete(s *subject, r *reporter) {
	for _, m := range s.manifests {
		if !bytes.Contains(m.Text(), []byte(payload.DeleteAnnotation)) {
			continue
		}
		for _, found := range keysNamed(payload.DeleteAnnotation, m.Object().Object, nil) {
			path := found.path
			isSchema := m.groupKind() == kinds.CustomResourceDefinition && path[0] == "spec" // schema of such a field
			if isSchema || slices.Equal(path, annotation(payload.DeleteAnnotation)) {
				continue
			}
			place := cmp.Or(strings.Join(path[:len(path)-1], "."), "the manifest itself")
			r.field(m, path, "%s is in %s, where it has no effect: move it to metadata.annotations of the object",
				payload.DeleteAnnotation, place)
		}
	}
}

// A keyedValue is a value within an object, and its path.
type keyedValue struct {
	path  []string
	value any
}

// keysNamed finds the values of all keys of a name.
func keysNamed(name string, value any, path []string) []keyedValue {
	var found []keyedValue
	switch value := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(value) {
			below := append(slices.Clone(path), key)
			if key == name {
				found = append(found, keyedValue{below, value[key]})
			}
			found = append(found, keysNamed(name, value[key], below)...)
		}
	case []any:
		for i, item := range value {
			found = append(found, keysNamed(name, item, append(slices.Clone(path), strconv.Itoa(i)))...)
		}
	}
	return found
}

// checkDeleteNever looks for tombstones that no cluster ever gets.
func checkDeleteNever(s *subject, r *reporter) {
	for _, m := range s.tombstones {
		switch {
		case !s.shareCluster(m, m):
			r.field(m, annotation(payload.DeleteAnnotation),
				"its annotations leave it out of every cluster, so it deletes nothing: fix those for the profile, "+
					"feature set or feature gate")
		case s.profiles && !m.hasProfile() && s.isForProfiles(m):
			r.field(m, annotation(payload.DeleteAnnotation),
				"it is for no cluster profile, and the release has profiles, so it deletes nothing: give it the "+
					"%sPROFILE annotations of the manifest that created it", payload.IncludePrefix)
		}
	}
	for _, exclusion := range s.Excluded {
		isForLater := len(s.byID[exclusion.Manifest.ID()]) > 0 // this major version contains the object
		if exclusion.Filter == payload.ByMajorVersion && exclusion.Manifest.IsTombstone() && !isForLater {
			r.field(newManifest(exclusion.Manifest), annotation(payload.DeleteAnnotation),
				"it is for another major version than this release, so it deletes nothing: %s", exclusion.Reason)
		}
	}
}

// isForProfiles reports whether the object of a tombstone was applied by profile: by the previous payload, or, if that
// does not have the object, in a payload whose manifests all have profiles. Manifests without profiles are for clusters
// without one.
func (s *subject) isForProfiles(tombstone *manifest) bool {
	if s.previous != nil && len(s.previous.byID[tombstone.id]) > 0 {
		return slices.ContainsFunc(s.previous.byID[tombstone.id], (*manifest).hasProfile)
	}
	return !slices.ContainsFunc(s.normal, func(m *manifest) bool { return !m.hasProfile() })
}

func checkDeleteCreateOnly(s *subject, r *reporter) {
	for _, m := range s.tombstones {
		if m.IsCreateOnly() {
			r.field(m, annotation(payload.CreateOnlyAnnotation),
				"the delete annotation wins, and %s has no effect beside it", payload.CreateOnlyAnnotation)
		}
	}
}

// checkCreatedAndDeleted compares each tombstone with the normal manifests of its
// object, in all files.
func checkCreatedAndDeleted(s *subject, r *reporter) {
	for _, m := range s.tombstones {
		for _, other := range s.byID[m.id] {
			if cluster, shared := s.sharedCluster(m, other); shared && !other.isTombstone {
				r.field(m, annotation(payload.DeleteAnnotation),
					"%s:%d creates it%s, so it is deleted and created without end: keep one of them", other.Path,
					other.Line, onCluster(cluster))
				break
			}
		}
	}
}

// checkDuplicate reports each manifest that shares a cluster with an earlier manifest of the same object.
func checkDuplicate(s *subject, r *reporter) {
	for _, m := range s.manifests {
		for _, other := range s.byID[m.id] {
			if other == m {
				break
			}
			if cluster, shared := s.sharedCluster(m, other); shared && m.isTombstone == other.isTombstone {
				r.at(m, "the same object is in %s:%d%s: keep one of them, or let their annotations choose", other.Path,
					other.Line, onCluster(cluster))
				break
			}
		}
	}
}
