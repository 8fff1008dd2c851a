package state

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/pkg/payload"
)

// checkObject returns an error for an argument that is neither an object nor a file, before connecting to the cluster.
func checkObject(text string) error {
	if isFileName(text) {
		return nil
	}
	if found, err := os.Stat(text); err == nil && found.IsDir() {
		return core.Misusef("%s is a folder, which can only be the SOURCE: %w", text, errNoObject)
	}
	if _, err := loader.ParseSelector(text); err != nil {
		return core.Misusef("%q: %w", text, errNoObject)
	}
	return nil
}

func isFileName(text string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(text))
}

// A requestedObject is an object that the user has named.
type requestedObject struct {
	kinds.ID
	deletes bool // the manifest is a tombstone
}

// requestedObjects are the objects that the user asks for: one by its name, or those of a file.
func (f *whyFlags) requestedObjects(ctx context.Context, c *cluster.Cluster, text string, release *payload.Payload, records []*record.Record) ([]requestedObject, error) {
	known := knownOf(release, records)
	if !isFileName(text) {
		id, err := f.named(ctx, c, text, known)
		return []requestedObject{{ID: id}}, err
	}
	if _, err := os.Stat(text); err == nil {
		return f.onDisk(ctx, c, text)
	}
	var objects []requestedObject
	for _, knownObject := range known {
		if object := (requestedObject{ID: knownObject.id}); (path.Base(knownObject.file) == text || knownObject.file == text) && !slices.Contains(objects, object) {
			objects = append(objects, object)
		}
	}
	if len(objects) == 0 {
		return nil, core.Misusef("there is no file %s, and neither SOURCE nor an apply that is not done knows one of that name", text)
	}
	return objects, nil
}

// A knownObject is one that a release is known to have.
type knownObject struct {
	id   kinds.ID
	file string
}

// knownOf returns the objects of the release and of the records.
func knownOf(release *payload.Payload, records []*record.Record) []knownObject {
	var known []knownObject
	if release != nil {
		for _, manifest := range release.Manifests {
			known = append(known, knownObject{manifest.ID(), manifest.Path})
		}
	}
	for _, item := range records {
		for _, requested := range item.Tombstones {
			known = append(known, knownObject{id: requested.ID})
		}
		if item.Run == nil {
			continue
		}
		for _, node := range item.Run.Nodes {
			for _, step := range node.Steps {
				known = append(known, knownObject{step.ID, step.File})
			}
		}
	}
	return known
}

// named returns the object with the name in the argument.
func (f *whyFlags) named(ctx context.Context, c *cluster.Cluster, text string, known []knownObject) (kinds.ID, error) {
	selector, err := loader.ParseSelector(text)
	if err != nil {
		return kinds.ID{}, core.Misuse(err)
	}
	meant := selector.ID
	if meant.Namespace != "" && f.namespace != "" && meant.Namespace != f.namespace {
		return kinds.ID{}, core.Misusef("%s is in namespace %s, and --namespace is %s: leave one of them out", text, meant.Namespace, f.namespace)
	}
	meant.Namespace = cmp.Or(meant.Namespace, f.namespace)
	kind, err := f.kindOf(ctx, c, meant, known)
	if err != nil {
		return kinds.ID{}, err
	}
	if kind == nil {
		return unserved(meant, known)
	}
	id := kinds.ID{Group: kind.Group, Kind: kind.Kind, Name: meant.Name}
	if kind.Namespaced {
		id.Namespace = cmp.Or(meant.Namespace, f.cluster.DefaultNamespace())
	} else if strings.Count(text, "/") > 1 {
		return id, core.Misusef("%s: objects of kind %s are in no namespace: leave it out", text, kind.Kind)
	}
	return id, nil
}

// kindOf returns the kind of a name; nil if the cluster has none. Of several, it prefers the kind of Kubernetes' own API,
// then the only kind that has such an object, then the kind of which a release is known to have such an object.
func (f *whyFlags) kindOf(ctx context.Context, c *cluster.Cluster, meant kinds.ID, known []knownObject) (*cluster.Resource, error) {
	var group *string
	if meant.Group != "" {
		group = &meant.Group
	}
	found, err := c.FindByName(ctx, meant.Kind, group)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	isOwn := func(r cluster.Resource) bool { return kinds.ScopeOf(r.GroupKind()) != kinds.Unknown }
	if at := slices.IndexFunc(found, isOwn); at >= 0 {
		return &found[at], nil
	}
	if len(found) == 1 {
		return &found[0], nil
	}
	var names []string
	for _, resource := range found {
		names = append(names, resource.GroupKind().String())
	}
	with, err := f.thoseWith(ctx, c, found, meant)
	if err == nil && len(with) == 0 {
		with = slices.DeleteFunc(slices.Clone(found), func(r cluster.Resource) bool { return !f.isKnown(r, meant, known) })
		if len(with) == 0 {
			return nil, f.notFound(found, meant, names)
		}
	}
	if err != nil || len(with) > 1 {
		return nil, core.Misusef("%q is ambiguous: write one of %s", meant.Kind, strings.Join(names, ", "))
	}
	return &with[0], nil
}

// notFound returns the error for a name that no object of several kinds has.
func (f *whyFlags) notFound(several []cluster.Resource, meant kinds.ID, names []string) error {
	where := ""
	if !slices.ContainsFunc(several, func(r cluster.Resource) bool { return !r.Namespaced }) {
		where = " in namespace " + f.namespaceOf(several[0], meant)
	}
	return fmt.Errorf("there is no object of the name %s%s: neither %s", meant.Name, where, strings.Join(names, " nor "))
}

// thoseWith returns those of several kinds that have an object of a name.
func (f *whyFlags) thoseWith(ctx context.Context, c *cluster.Cluster, several []cluster.Resource, meant kinds.ID) ([]cluster.Resource, error) {
	var with []cluster.Resource
	for _, resource := range several {
		_, err := c.In(resource, f.namespaceOf(resource, meant)).Get(ctx, meant.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			with = append(with, resource)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return with, nil
}

// isKnown reports whether a release is known to have the object, if it is of a kind.
func (f *whyFlags) isKnown(kind cluster.Resource, meant kinds.ID, known []knownObject) bool {
	id := kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: f.namespaceOf(kind, meant), Name: meant.Name}
	return slices.ContainsFunc(known, func(object knownObject) bool { return object.id == id })
}

// namespaceOf returns the namespace of the object, if it is of a kind; "" for cluster-scoped kinds.
func (f *whyFlags) namespaceOf(kind cluster.Resource, meant kinds.ID) string {
	if !kind.Namespaced {
		return ""
	}
	return cmp.Or(meant.Namespace, f.cluster.DefaultNamespace())
}

// unserved returns an object of a kind that the cluster does not serve: a known object, or the
// argument as it is, if it can be the name of a kind.
func unserved(meant kinds.ID, known []knownObject) (kinds.ID, error) {
	for _, object := range known {
		id := object.id
		isKind := strings.EqualFold(id.Kind, meant.Kind) || strings.EqualFold(id.Kind+"s", meant.Kind)
		if isKind && id.Name == meant.Name && (meant.Group == "" || id.Group == meant.Group) && (meant.Namespace == "" || id.Namespace == meant.Namespace) {
			return id, nil
		}
	}
	if first := meant.Kind[0]; first < 'A' || first > 'Z' {
		return kinds.ID{}, core.Misusef("the cluster has no kind %q, and no release is known to have one: write it as Kind.group/[NAMESPACE/]NAME", meant.Kind)
	}
	return kinds.ID{Group: meant.Group, Kind: meant.Kind, Namespace: meant.Namespace, Name: meant.Name}, nil
}

// onDisk returns the objects of a file.
func (f *whyFlags) onDisk(ctx context.Context, c *cluster.Cluster, name string) ([]requestedObject, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, core.Misuse(err)
	}
	documents, err := payload.Documents(text)
	if err != nil {
		return nil, core.Misusef("%s: %w", name, err)
	}
	var objects []requestedObject
	for _, document := range documents {
		value, _ := document.Value.(map[string]any)
		object := &unstructured.Unstructured{Object: value}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, core.Misusef("%s, document %d: it is no object: apiVersion, kind and metadata.name are needed", name, document.Number)
		}
		kind := object.GroupVersionKind().GroupKind()
		id := kinds.ID{Group: kind.Group, Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
		if in, err := c.FindKind(ctx, kind); err == nil && in.Namespaced {
			id.Namespace = cmp.Or(id.Namespace, f.namespace, f.cluster.DefaultNamespace())
		}
		objects = append(objects, requestedObject{id, object.GetAnnotations()[payload.DeleteAnnotation] == "true"})
	}
	if len(objects) == 0 {
		return nil, core.Misusef("%s: there is no object in it", name)
	}
	return objects, nil
}
