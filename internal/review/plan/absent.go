package plan

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// isAbsent reports whether the new release has no manifest of an object of the old one.
// If a broken release has an object twice, only its last manifest counts.
func (c *comparer) isAbsent(m *payload.Manifest) bool {
	id := storedID(m)
	return c.to.manifests[id] == nil && c.from.manifests[id] == m
}

// planAbsent returns the plan of an object that the new release does not apply.
func (c *comparer) planAbsent(m *payload.Manifest, deletions *cascade) ObjectPlan {
	id := m.ID()
	e := ObjectPlan{ID: id, Old: place(m)}
	exclusion := c.to.exclusions[storedID(m)]
	parent, hasParent := deletions.parents[id]
	switch {
	case m.IsTombstone() && exclusion != nil:
		e.Action, e.Why = Retired, "the old release deletes it, and in the new one it is left out by "+exclusion.Why()
	case m.IsTombstone():
		e.Action, e.Why = Retired, "the old release deletes it, and the new one does not have it"
	case hasParent:
		e.Action, e.Why, e.With = DeletedWith, parent.relation+" "+parent.object.String()+" is deleted", &parent.object
	case c.to.tests[storedID(m)]:
		e.Action, e.Why = MadeTest,
			`it is a test in the new release: it stays in the cluster until "runlevel test" replaces it`
	case exclusion != nil && exclusion.Manifest.IsTombstone():
		e.Action, e.Why = LeftOut, "its tombstone is left out by "+exclusion.Why()+"; it stays in the cluster"
	case exclusion != nil:
		e.Action, e.Why = LeftOut, "it is left out of the new release by "+exclusion.Why()+"; it stays in the cluster"
	default:
		e.Action, e.Why = Dropped, "nothing deletes it: it stays in the cluster"
		contained := c.containedObject(m)
		e.UsedBy = c.usesOf(m)
		switch cover := c.coveringNamespace(m); {
		case contained == nil && len(e.UsedBy) > 0:
			e.Why = describeUses(e.UsedBy) + ", and nothing creates it in a new cluster: it stays in those that have it"
		case contained == nil:
			e.Tombstone = c.tombstones(m)
			if cover != nil {
				namespace := cover.ID()
				e.CoveredBy = &namespace
				e.Why += "; a tombstone of " + namespace.String() + " would also delete it"
			}
		default:
			e.Why = "nothing deletes it, since that would also delete " + contained.ID().String() +
				" of the new release: it stays in the cluster"
		}
	}
	return e
}

// containedObject returns an object that the new release applies in a Namespace, or of the kind of a
// CustomResourceDefinition; nil if there is none.
func (c *comparer) containedObject(m *payload.Manifest) *payload.Manifest {
	switch m.GroupVersionKind().GroupKind() {
	case kinds.Namespace:
		return c.inNamespace[m.ID().Name]
	case kinds.CustomResourceDefinition:
		if kind := kinds.DefinedBy(m.Object()); kind.Group != "" && kind.Kind != "" {
			return c.ofKind[kind]
		}
	}
	return nil
}

// coveringNamespace returns the dropped Namespace of an object, whose tombstone would delete the object as well; nil if
// there is none.
func (c *comparer) coveringNamespace(m *payload.Manifest) *payload.Manifest {
	id := kinds.NewID(kinds.Namespace, "", m.ID().Namespace)
	namespace := c.from.manifests[id]
	if m.ID().Namespace == "" || namespace == nil || namespace.IsTombstone() || !c.isAbsent(namespace) ||
		c.to.exclusions[id] != nil {
		return nil // the object has no Namespace, the Namespace stays, or its tombstone is not printed
	}
	if c.containedObject(namespace) != nil {
		return nil
	}
	for _, variant := range c.variants[storedID(m)] {
		if !slices.ContainsFunc(c.variants[id], func(n *payload.Manifest) bool {
			return maps.Equal(filters(n), filters(variant))
		}) {
			return nil
		}
	}
	return namespace
}

// A parent is an object whose deletion deletes another one.
type parent struct {
	relation string // itsParent or owner
	object   kinds.ID
}

// Relations of a parent to an object, for messages.
const (
	itsParent = "its"       // its Namespace or CustomResourceDefinition
	owner     = "its owner" // an owner of any kind
)

// A cascade finds the objects that are deleted when tombstones are applied: their own, all objects in a deleted
// Namespace or of a deleted CustomResourceDefinition, and all objects whose owners are all deleted.
type cascade struct {
	parents    map[kinds.ID]parent           // parents by the objects of the old release that are deleted with them
	namespaces map[string]kinds.ID           // deleted Namespaces
	kinds      map[schema.GroupKind]kinds.ID // deleted CustomResourceDefinitions
	deleted    map[kinds.ID]bool             // all deleted objects

	candidates  []candidate
	inNamespace map[string][]int // indexes of candidates
	ofKind      map[schema.GroupKind][]int
	ownedBy     map[kinds.ID][]int
	queue       []*payload.Manifest // deleted objects, in the order in which they are found
}

// A candidate is an object of the old release that the new one does not apply.
type candidate struct {
	manifest *payload.Manifest
	owners   int // the owners that are not known to be deleted
}

// cascadeOf returns the manifests of the old release whose objects are deleted by tombstones of the new release.
func (c *comparer) cascadeOf(old, steps []*payload.Manifest) *cascade {
	g := &cascade{
		parents: map[kinds.ID]parent{}, namespaces: map[string]kinds.ID{}, kinds: map[schema.GroupKind]kinds.ID{},
		deleted:     map[kinds.ID]bool{},
		inNamespace: map[string][]int{}, ofKind: map[schema.GroupKind][]int{}, ownedBy: map[kinds.ID][]int{},
	}
	for _, m := range old {
		if c.isAbsent(m) && !m.IsTombstone() {
			g.add(m)
		}
	}
	for _, m := range steps {
		if !m.IsTombstone() {
			continue
		}
		g.queue = append(g.queue, m)
		// it may have more fields, such as the kind that it defines
		if before := c.from.manifests[storedID(m)]; before != nil {
			g.queue = append(g.queue, before)
		}
	}
	for i := 0; i < len(g.queue); i++ { // delete may add to it
		g.delete(g.queue[i])
	}
	return g
}

// add adds a candidate.
func (c *cascade) add(m *payload.Manifest) {
	id, index := m.ID(), len(c.candidates)
	owners := ownersOf(m)
	c.candidates = append(c.candidates, candidate{manifest: m, owners: len(owners)})
	if id.Namespace != "" {
		c.inNamespace[id.Namespace] = append(c.inNamespace[id.Namespace], index)
	}
	kind := m.GroupVersionKind().GroupKind()
	c.ofKind[kind] = append(c.ofKind[kind], index)
	for _, owner := range owners {
		c.ownedBy[owner] = append(c.ownedBy[owner], index)
		if owner.Namespace != "" { // the owner may be cluster-wide
			owner.Namespace = ""
			c.ownedBy[owner] = append(c.ownedBy[owner], index)
		}
	}
}

// delete records that an object is deleted, and all objects with it that depend on it.
func (c *cascade) delete(m *payload.Manifest) {
	id := m.ID()
	c.deleted[id] = true
	switch m.GroupVersionKind().GroupKind() {
	case kinds.Namespace:
		c.namespaces[id.Name] = id
		for _, index := range c.inNamespace[id.Name] {
			c.deleteWith(index, parent{itsParent, id})
		}
	case kinds.CustomResourceDefinition:
		if kind := kinds.DefinedBy(m.Object()); kind.Group != "" && kind.Kind != "" {
			c.kinds[kind] = id
			for _, index := range c.ofKind[kind] {
				c.deleteWith(index, parent{itsParent, id})
			}
		}
	}
	dependents := c.ownedBy[id]
	delete(c.ownedBy, id) // each owner is counted once
	for _, index := range dependents {
		if c.candidates[index].owners--; c.candidates[index].owners == 0 {
			c.deleteWith(index, parent{owner, id})
		}
	}
}

// deleteWith adds an object to the queue because its parent is deleted, once.
func (c *cascade) deleteWith(index int, by parent) {
	m := c.candidates[index].manifest
	if _, known := c.parents[m.ID()]; known {
		return
	}
	c.parents[m.ID()] = by
	c.queue = append(c.queue, m)
}

// parentOf returns the object whose deletion deletes another one, if there is one.
func (c *cascade) parentOf(m *payload.Manifest) (kinds.ID, bool) {
	if namespace, found := c.namespaces[m.ID().Namespace]; found {
		return namespace, true
	}
	if definition, found := c.kinds[m.GroupVersionKind().GroupKind()]; found {
		return definition, true
	}
	owners := ownersOf(m)
	for i, owner := range owners {
		if !c.deleted[owner] {
			owners[i].Namespace = ""
		}
		if !c.deleted[owners[i]] {
			return kinds.ID{}, false
		}
	}
	if len(owners) == 0 {
		return kinds.ID{}, false
	}
	return owners[0], true
}

// ownersOf returns the owners of an object, as if they were in its namespace.
func ownersOf(m *payload.Manifest) []kinds.ID {
	var owners []kinds.ID
	for _, reference := range m.Object().GetOwnerReferences() {
		kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind)
		owners = append(owners, kinds.NewID(kind.GroupKind(), m.ID().Namespace, reference.Name))
	}
	return owners
}

// filtering are the annotations that choose the clusters of a manifest. Those
// that end with a slash are prefixes.
var filtering = []string{
	"include.release.openshift.io/", "exclude.release.openshift.io/", "release.openshift.io/feature-set",
	"release.openshift.io/feature-gate", "release.openshift.io/major-version", "capability.openshift.io/name",
}

// tombstones returns the manifests that delete an object from all clusters that have it: one for each of its variants,
// also of those that the filter leaves out, in the language of the file of m.
func (c *comparer) tombstones(m *payload.Manifest) string {
	isJSON := path.Ext(m.Path) == ".json"
	separator := "---\n"
	if isJSON {
		separator = ""
	}
	var texts []string
	for _, variant := range c.variants[storedID(m)] {
		if text := tombstone(variant, isJSON); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, separator)
}

// tombstone returns the manifest that deletes the object of another one from the clusters that it is for.
func tombstone(m *payload.Manifest, isJSON bool) string {
	annotations := filters(m)
	annotations[payload.DeleteAnnotation] = "true"
	id := m.ID()
	metadata := map[string]any{"name": id.Name, "annotations": annotations}
	if id.Namespace != "" {
		metadata["namespace"] = id.Namespace
	}
	object := map[string]any{"apiVersion": m.Object().GetAPIVersion(), "kind": id.Kind, "metadata": metadata}
	text, err := yaml.Marshal(object)
	if isJSON {
		text, err = json.MarshalIndent(object, "", "  ")
		text = append(text, '\n')
	}
	if err != nil {
		return "" // strings can always be written
	}
	return string(text)
}

// filters returns the annotations of a manifest that choose its clusters.
func filters(m *payload.Manifest) map[string]string {
	found := map[string]string{}
	for key, value := range m.Object().GetAnnotations() {
		for _, name := range filtering {
			if key == name || strings.HasSuffix(name, "/") && strings.HasPrefix(key, name) {
				found[key] = value
			}
		}
	}
	return found
}
