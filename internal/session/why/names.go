package why

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/fingerprint"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/graph"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A NamedObject is an object that a user has named.
type NamedObject struct {
	kinds.ID
	Deletes bool // the manifest is a tombstone
}

// A Resolver finds the objects that a user names.
type Resolver struct {
	Cluster   *cluster.Cluster
	Query     ObjectQuery // contains the known objects of releases
	Namespace string      // value of the flag --namespace; "" if it is not set
	Default   string      // the namespace of objects without a named namespace
}

// A NameError reports a name that no object has, or that several have.
type NameError struct{ error }

// Unwrap returns the error.
func (e NameError) Unwrap() error { return e.error }

func nameErrorf(format string, values ...any) error { return NameError{fmt.Errorf(format, values...)} }

// File returns the objects in a file of the release, or in a file of an unfinished apply.
func (r *Resolver) File(name string) ([]NamedObject, error) {
	var objects []NamedObject
	for _, known := range r.Query.knownObjects() {
		if object := (NamedObject{ID: known.id}); (path.Base(known.file) == name || known.file == name) &&
			!slices.Contains(objects, object) {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return nil, nameErrorf("file %s does not exist, and neither SOURCE nor an unfinished apply has a file of "+
			"that name", name)
	}
	return objects, nil
}

// A knownObject is an object of a release.
type knownObject struct {
	id   kinds.ID
	file string
}

// knownObjects returns the objects of the release and of the records.
func (q *ObjectQuery) knownObjects() []knownObject {
	var known []knownObject
	if q.Release != nil {
		for _, manifest := range q.Release.Manifests {
			known = append(known, knownObject{manifest.ID(), manifest.Path})
		}
	}
	for _, item := range q.Records {
		for _, requested := range item.Tombstones {
			known = append(known, knownObject{id: requested.ID})
		}
		for _, step := range apply.StateOf(item.Run).Steps() {
			known = append(known, knownObject{step.ID, step.File})
		}
	}
	return known
}

// hasApplied reports whether the record of a release has the fingerprint of an object.
func (q *ObjectQuery) hasApplied(id kinds.ID) bool {
	return slices.ContainsFunc(q.Records, func(rec *record.Record) bool {
		return fingerprint.Read(rec.Fingerprints).Has(id)
	})
}

// Object returns the object that a text names, as KIND[.GROUP]/[NAMESPACE/]NAME, whose parts are in meant.
func (r *Resolver) Object(ctx context.Context, text string, meant kinds.ID) (NamedObject, error) {
	if meant.Namespace != "" && r.Namespace != "" && meant.Namespace != r.Namespace {
		return NamedObject{}, nameErrorf("%s names namespace %s, which conflicts with --namespace=%s", text,
			meant.Namespace, r.Namespace)
	}
	meant.Namespace = cmp.Or(meant.Namespace, r.Namespace)
	known := r.Query.knownObjects()
	kind, err := r.kindOf(ctx, meant, known)
	if err != nil {
		return NamedObject{}, err
	}
	if kind == nil {
		return unserved(meant, known)
	}
	if !kind.Namespaced && strings.Count(text, "/") > 1 {
		return NamedObject{}, nameErrorf("%s: objects of kind %s are in no namespace: leave it out", text, kind.Kind)
	}
	id := r.idOf(*kind, meant)
	if kind.Namespaced && meant.Namespace == "" {
		id.Namespace, err = r.namespaceOf(ctx, *kind, id, known)
	}
	return NamedObject{ID: id}, err
}

// namespaceOf returns the namespace of an object for which the user has named none: the default one if the object
// exists there, or else the only namespace in which a release has such an object, or else the only one in which it
// exists.
func (r *Resolver) namespaceOf(ctx context.Context, kind cluster.Resource, id kinds.ID,
	known []knownObject) (string, error) {
	if _, err := r.Cluster.GetMetadata(ctx, kind, id.Namespace, id.Name); err == nil {
		return id.Namespace, nil
	}
	resource := func(namespace string) kinds.ID {
		return kinds.NewID(id.GroupKind(), namespace, id.Name)
	}
	ofReleases, others := map[string]bool{}, map[string]bool{}
	for _, object := range known {
		if object.id == resource(object.id.Namespace) {
			ofReleases[object.id.Namespace] = true
		}
	}
	// Without the right to list, the default namespace is the answer.
	_ = r.Cluster.EachMetadata(ctx, kind, metav1.NamespaceAll,
		metav1.ListOptions{FieldSelector: "metadata.name=" + id.Name}, func(m *metav1.PartialObjectMetadata) {
			head := objectmeta.Of(kind, m)
			others[m.Namespace] = true
			ofReleases[m.Namespace] = ofReleases[m.Namespace] || head.Release != "" && head.IsOf(head.Release)
		})
	// the records know objects that were deleted, too
	if namespaces, err := r.Cluster.FindKind(ctx, kinds.Namespace); err == nil {
		_ = r.Cluster.EachMetadata(ctx, namespaces, "", metav1.ListOptions{}, func(m *metav1.PartialObjectMetadata) {
			ofReleases[m.Name] = ofReleases[m.Name] || r.Query.hasApplied(resource(m.Name))
		})
	}
	maps.DeleteFunc(ofReleases, func(_ string, isOf bool) bool { return !isOf })
	if len(ofReleases) == 0 {
		ofReleases = others
	}
	switch found := slices.Sorted(maps.Keys(ofReleases)); {
	case len(found) == 0 || ofReleases[id.Namespace]:
		return id.Namespace, nil
	case len(found) == 1:
		return found[0], nil
	default:
		return "", nameErrorf("%s %s exists in namespaces %s: pass one namespace with -n", id.Kind, id.Name,
			strings.Join(found, ", "))
	}
}

// kindOf returns the kind of a name; nil if the cluster has none. Of several, it prefers the kind of Kubernetes' own
// API, then the only kind that has such an object, then the kind of which a release is known to have such an object.
func (r *Resolver) kindOf(ctx context.Context, meant kinds.ID, known []knownObject) (*cluster.Resource, error) {
	var group *string
	if meant.Group != "" {
		group = &meant.Group
	}
	found, err := r.Cluster.FindByName(ctx, meant.Kind, group)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	isOwn := func(r cluster.Resource) bool { return kinds.ScopeOf(r.GroupKind()) != kinds.Unknown }
	if index := slices.IndexFunc(found, isOwn); index >= 0 {
		return &found[index], nil
	}
	if len(found) == 1 {
		return &found[0], nil
	}
	var names []string
	for _, resource := range found {
		names = append(names, resource.GroupKind().String())
	}
	with, err := r.thoseWith(ctx, found, meant)
	if err == nil && len(with) == 0 {
		isUnknown := func(kind cluster.Resource) bool {
			return !slices.ContainsFunc(known, func(object knownObject) bool {
				return object.id == r.idOf(kind, meant)
			})
		}
		if with = slices.DeleteFunc(slices.Clone(found), isUnknown); len(with) == 0 {
			return nil, r.notFound(found, meant, names)
		}
	}
	if err != nil || len(with) > 1 {
		return nil, nameErrorf("%q is ambiguous: write one of %s", meant.Kind, strings.Join(names, ", "))
	}
	return &with[0], nil
}

// notFound returns the error for a name that no object of several kinds has.
func (r *Resolver) notFound(several []cluster.Resource, meant kinds.ID, names []string) error {
	where := ""
	if !slices.ContainsFunc(several, func(r cluster.Resource) bool { return !r.Namespaced }) {
		where = " in namespace " + r.idOf(several[0], meant).Namespace
	}
	return fmt.Errorf("no object has the name %s%s: neither %s", meant.Name, where,
		strings.Join(names, " nor "))
}

// thoseWith returns those of several kinds that have an object of a name.
func (r *Resolver) thoseWith(ctx context.Context, several []cluster.Resource,
	meant kinds.ID) ([]cluster.Resource, error) {
	var with []cluster.Resource
	for _, kind := range several {
		_, err := r.Cluster.Get(ctx, r.idOf(kind, meant))
		switch {
		case err == nil:
			with = append(with, kind)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return with, nil
}

// idOf returns the named object, if its kind is the given one.
func (r *Resolver) idOf(kind cluster.Resource, meant kinds.ID) kinds.ID {
	id := kinds.NewID(kind.GroupKind(), "", meant.Name)
	if kind.Namespaced {
		id.Namespace = cmp.Or(meant.Namespace, r.Default)
	}
	return id
}

// unserved returns an object of a kind that the cluster does not serve: a known object, or the
// argument as it is, if it can be the name of a kind.
func unserved(meant kinds.ID, known []knownObject) (NamedObject, error) {
	for _, object := range known {
		id := object.id
		isKind := strings.EqualFold(id.Kind, meant.Kind) || strings.EqualFold(id.Kind+"s", meant.Kind)
		if isKind && id.Name == meant.Name && (meant.Group == "" || id.Group == meant.Group) &&
			(meant.Namespace == "" || id.Namespace == meant.Namespace) {
			return NamedObject{ID: id}, nil
		}
	}
	if first := meant.Kind[0]; first < 'A' || first > 'Z' {
		return NamedObject{}, nameErrorf("the cluster has no kind %q, and no release is known to have one: write it "+
			"as Kind.group/[NAMESPACE/]NAME", meant.Kind)
	}
	return NamedObject{ID: meant}, nil
}

// Manifest returns the objects in the text of a manifest outside of the release.
func (r *Resolver) Manifest(ctx context.Context, name string, text []byte) ([]NamedObject, error) {
	documents, err := payload.Documents(text)
	if err != nil {
		return nil, nameErrorf("%s: %w", name, err)
	}
	var objects []NamedObject
	for _, document := range documents {
		value, _ := document.Value.(map[string]any)
		object := &unstructured.Unstructured{Object: value}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, nameErrorf("%s, document %d: not an object: apiVersion, kind and metadata.name are required",
				name, document.Number)
		}
		kind := object.GroupVersionKind().GroupKind()
		id := kinds.NewID(kind, object.GetNamespace(), object.GetName())
		if resource, err := r.Cluster.FindKind(ctx, kind); err == nil && resource.Namespaced {
			id.Namespace = cmp.Or(id.Namespace, r.Namespace, r.Default)
		}
		objects = append(objects, NamedObject{id, object.GetAnnotations()[payload.DeleteAnnotation] == "true"})
	}
	if len(objects) == 0 {
		return nil, nameErrorf("%s contains no object", name)
	}
	return objects, nil
}

// plan finds the place of the object in the release, if the query names one. An object
// that has both a tombstone and a manifest should exist.
func (g *gatherer) plan() {
	if g.Release == nil {
		return
	}
	g.facts.Plan = &ReleasePlace{Release: g.Release.Name, Version: g.Release.Version}
	tasks := g.Release.Manifests
	index := slices.IndexFunc(tasks, func(m *payload.Manifest) bool {
		return m.ID() == g.facts.Object && !m.IsTombstone()
	})
	if index < 0 {
		index = slices.IndexFunc(tasks, func(m *payload.Manifest) bool { return m.ID() == g.facts.Object })
	}
	if index < 0 {
		return
	}
	g.manifest = tasks[index]
	plan := g.facts.Plan
	plan.File, plan.Node, plan.Deletes = g.manifest.Path, nodeOf(g.manifest.Path), g.manifest.IsTombstone()
	built := graph.Build(tasks, graph.Options{Implied: true})
	for i, node := range built.Nodes {
		if slices.Contains(node.Tasks, index) {
			plan.After = predecessors(built, tasks, i)
		}
	}
	for _, dependency := range slices.Concat(built.Implied, built.Conflicts) {
		if dependency.Task == index {
			needed := tasks[dependency.Needs]
			plan.Needs = append(plan.Needs,
				Need{Object: needed.ID(), File: needed.Path, Node: nodeOf(needed.Path), Why: dependency.Why})
		}
	}
}

// predecessors returns the names of the nodes right before a node.
func predecessors(g *graph.Graph, tasks []*payload.Manifest, node int) []string {
	var names []string
	for _, blocker := range g.Walk().WhyBlocked(node) {
		first := tasks[g.Nodes[blocker].Tasks[0]]
		if name := cmp.Or(nodeOf(first.Path), first.ID().String()); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// nodeOf returns the level and the component in the name of a file; "" if it has none.
func nodeOf(file string) string { return graph.ParseName(path.Base(file)).Words() }
