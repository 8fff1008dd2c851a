// Package inventory finds what releases have on a cluster, from metadata alone: one
// list for each kind, of the objects that carry the label of a release. It knows what
// is there before an apply, what of it is ours, and what has been left behind. Of objects
// that are to go, it counts what goes with them.
//
// It reads no object's body, changes nothing, and judges nothing.
//
// Take is the call to start from; Tolls counts.
package inventory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
)

// Label says which release an object is of. Its value is the name of the release.
const Label = "runlevel.dev/release"

// listsAtOnce bounds how many lists are asked for at a time.
const listsAtOnce = 16

// A Head is an object without its body.
type Head struct {
	ID              kinds.ID
	Resource        cluster.Resource
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Release         string    // the value of its label
	IsApplied       bool      // we have applied it, or made it: a label alone may be copied
	Entry           Entry     // of ours in managedFields
	Controller      string    // who keeps it as it is, if another object does
	Terminating     bool      // its end was asked for
	Created         time.Time // by the server's clock

	object metav1.Object // with all that is said of it, but its body
}

// An Entry is what managedFields say that we own by applying it.
type Entry struct {
	Since  time.Time // of our last apply that changed anything, in whole seconds
	fields string    // as JSON, in whatever order
}

// Same says whether two entries are of the same apply, and nobody has taken anything of it.
func (e Entry) Same(other Entry) bool {
	if !e.Since.Equal(other.Since) {
		return false
	}
	if e.fields == other.fields {
		return true
	}
	return e.inOrder() == other.inOrder()
}

// IsOf says whether it is an object of a release: with its label, applied by us, and not
// kept by a controller that has copied the label.
func (h Head) IsOf(release string) bool {
	return h.Release == release && h.IsApplied && h.Controller == ""
}

// Owner names the release that it is of, if that is another than this one.
func (h Head) Owner(release string) (string, bool) {
	if h.Release == "" || h.Release == release || !h.IsOf(h.Release) {
		return "", false
	}
	return h.Release, true
}

// A Place is where objects of a kind are looked for, if the whole cluster may not be.
type Place struct {
	Kind      schema.GroupKind
	Namespace string // "" where none is known
}

// An Inventory is what releases have on a cluster.
type Inventory struct {
	heads    map[kinds.ID]*Head
	unlisted map[schema.GroupKind]error
	narrow   map[Place]bool // that were listed on their own
	taken    time.Time
}

// Take asks for the objects of some kinds. Kinds that the cluster does not have have none.
// Those that may not be listed in the whole cluster are listed in the namespaces of their
// places; for those and for all that can't be listed, because their API does not answer for
// example, Unlisted says why.
//
// Lists have the objects of all releases on the cluster. Those that matters says no to are
// forgotten at once, as if they had no label; nil forgets none.
func Take(ctx context.Context, c *cluster.Cluster, of []Place, matters func(release string, id kinds.ID) bool) (*Inventory, error) {
	found := &Inventory{heads: map[kinds.ID]*Head{}, unlisted: map[schema.GroupKind]error{}, narrow: map[Place]bool{}, taken: time.Now()}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for kind, namespaces := range byKind(of) {
		group.Go(func() error {
			heads, listed, err := lister{kind, matters}.look(ctx, c, namespaces)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, cluster.ErrNotServed):
			case ctx.Err() != nil:
				return ctx.Err()
			case utilnet.IsConnectionRefused(err):
				return err
			case err != nil:
				found.unlisted[kind] = err
			}
			for _, head := range heads {
				found.heads[head.ID] = head
			}
			for _, namespace := range listed {
				found.narrow[Place{kind, namespace}] = true
			}
			return nil
		})
	}
	return found, group.Wait()
}

// byKind are the namespaces of each kind.
func byKind(of []Place) map[schema.GroupKind][]string {
	all := map[schema.GroupKind][]string{}
	seen := map[Place]bool{}
	for _, place := range of {
		if seen[place] {
			continue
		}
		seen[place] = true
		all[place.Kind] = append(all[place.Kind], place.Namespace)
	}
	return all
}

// A lister lists the objects of one kind.
type lister struct {
	kind    schema.GroupKind
	matters func(release string, id kinds.ID) bool // nil if all do
}

// look asks for the objects of one kind, in the whole cluster if that is allowed, and else
// in some namespaces: those in which it was allowed are returned with the error.
func (l lister) look(ctx context.Context, c *cluster.Cluster, namespaces []string) (heads []*Head, listed []string, err error) {
	resource, err := c.FindKind(ctx, l.kind)
	if err != nil {
		return nil, nil, err
	}
	heads, err = l.list(ctx, c, resource, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) || !resource.Namespaced {
		return heads, nil, err
	}
	for _, namespace := range namespaces {
		if namespace == "" {
			continue
		}
		some, why := l.list(ctx, c, resource, namespace)
		if why != nil && !apierrors.IsForbidden(why) {
			return heads, listed, why
		}
		if why == nil {
			heads, listed = append(heads, some...), append(listed, namespace)
		}
	}
	return heads, listed, err
}

// pageSize is how many objects are asked for at a time: one page comes after the other.
const pageSize = 2000

// list asks for the labelled objects.
func (l lister) list(ctx context.Context, c *cluster.Cluster, in cluster.Resource, namespace string) ([]*Head, error) {
	var heads []*Head
	var labels, annotations recurring
	err := each(ctx, c.Metadata.Resource(in.GroupVersionResource).Namespace(namespace), metav1.ListOptions{LabelSelector: Label, Limit: pageSize}, func(object *metav1.PartialObjectMetadata) {
		if l.matters != nil && !l.matters(releaseOf(object), idOf(in, object)) {
			return
		}
		head := HeadOf(in, object)
		object.Labels, object.Annotations = labels.same(object.Labels), annotations.same(object.Annotations)
		head.object = leanOf(object, head.IsNew())
		heads = append(heads, &head)
	})
	return heads, err
}

// A recurring map is one that many objects have in a row, as they have the labels and the
// annotations of their release: it is kept once.
type recurring map[string]string

func (last *recurring) same(now map[string]string) map[string]string {
	if !maps.Equal(*last, now) {
		*last = now
	}
	return *last
}

// leanOf is what is asked for later of an object that is one of many: of who owns which field,
// only what is said of objects that we have never applied, and of how many replicas there are.
func leanOf(object *metav1.PartialObjectMetadata, isNew bool) *metav1.ObjectMeta {
	var lean []metav1.ManagedFieldsEntry
	for _, entry := range object.ManagedFields {
		if isNew || entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:replicas"`)) {
			lean = append(lean, entry)
		}
	}
	return &metav1.ObjectMeta{
		Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion, Generation: object.Generation,
		CreationTimestamp: object.CreationTimestamp, DeletionTimestamp: object.DeletionTimestamp,
		Labels: object.Labels, Annotations: object.Annotations, Finalizers: object.Finalizers, OwnerReferences: object.OwnerReferences,
		ManagedFields: lean,
	}
}

// each reads the objects of a list, page by page. They are good only until do returns.
func each(ctx context.Context, in metadata.ResourceInterface, options metav1.ListOptions, do func(*metav1.PartialObjectMetadata)) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return in.List(ctx, options)
	})
	pages.PageBufferSize = 1 // they are read faster than they come
	return pages.EachListItem(ctx, options, func(item runtime.Object) error {
		do(item.(*metav1.PartialObjectMetadata))
		return nil
	})
}

// HeadOf reads what there is to know of an object.
func HeadOf(resource cluster.Resource, object metav1.Object) Head {
	head := Head{
		ID: idOf(resource, object), Resource: resource, UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		Release: releaseOf(object), Terminating: object.GetDeletionTimestamp() != nil, Created: object.GetCreationTimestamp().Time,
		object: object,
	}
	for _, entry := range entriesOf(object) {
		if entry.Manager != cluster.FieldManager || entry.Subresource != "" {
			continue
		}
		head.IsApplied = true
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			head.Entry = entryOf(entry)
		}
	}
	if controller := metav1.GetControllerOf(object); controller != nil {
		head.Controller = controller.Kind + " " + controller.Name
	}
	return head
}

func idOf(resource cluster.Resource, object metav1.Object) kinds.ID {
	return kinds.ID{Group: resource.Group, Kind: resource.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// releaseOf is the value of the label, without copying all labels of an object with its body.
func releaseOf(object metav1.Object) string {
	whole, isWhole := object.(*unstructured.Unstructured)
	if !isWhole {
		return object.GetLabels()[Label]
	}
	value, _, _ := unstructured.NestedFieldNoCopy(whole.Object, "metadata", "labels", Label)
	release, _ := value.(string)
	return release
}

// entriesOf are the entries of managedFields; of an object with its body, only those of our
// manager, and read by hand: to have them converted takes longer than all else that is read of it.
func entriesOf(object metav1.Object) []metav1.ManagedFieldsEntry {
	whole, isWhole := object.(*unstructured.Unstructured)
	if !isWhole {
		return object.GetManagedFields()
	}
	all, _, _ := unstructured.NestedFieldNoCopy(whole.Object, "metadata", "managedFields")
	list, _ := all.([]any)
	var ours []metav1.ManagedFieldsEntry
	for _, item := range list {
		if entry, _ := item.(map[string]any); entry["manager"] == cluster.FieldManager {
			ours = append(ours, readEntry(entry))
		}
	}
	return ours
}

func readEntry(fields map[string]any) metav1.ManagedFieldsEntry {
	text := func(field string) string {
		value, _ := fields[field].(string)
		return value
	}
	entry := metav1.ManagedFieldsEntry{
		Manager: text("manager"), Operation: metav1.ManagedFieldsOperationType(text("operation")), Subresource: text("subresource"),
	}
	if since, err := time.Parse(time.RFC3339, text("time")); err == nil {
		entry.Time = &metav1.Time{Time: since}
	}
	if owned, err := json.Marshal(fields["fieldsV1"]); err == nil && fields["fieldsV1"] != nil {
		entry.FieldsV1 = metav1.NewFieldsV1(string(owned))
	}
	return entry
}

// IsNew says whether we have never applied it. We may have made it all the same.
func (h Head) IsNew() bool { return h.Entry == Entry{} }

// Metadata is all that is said of it, but its body; nil if it is not there. It must not be changed:
// objects share what they have in common.
func (h Head) Metadata() metav1.Object { return h.object }

// entryOf reads our entry. Neither its time nor its fields need be there.
func entryOf(entry metav1.ManagedFieldsEntry) Entry {
	var ours Entry
	if entry.Time != nil {
		ours.Since = entry.Time.Time
	}
	if entry.FieldsV1 != nil {
		ours.fields = unique.Make(string(entry.FieldsV1.GetRawBytes())).Value() // which most objects of a kind have
	}
	return ours
}

// Find is the object of that name, if a release has it.
func (i *Inventory) Find(id kinds.ID) (Head, bool) {
	if head, found := i.heads[id]; found {
		return *head, true
	}
	return Head{}, false
}

// Age is how long ago it was taken.
func (i *Inventory) Age() time.Duration { return time.Since(i.taken) }

// Covers says whether an object that is not found has no label of a release, or is not
// there.
func (i *Inventory) Covers(id kinds.ID) bool {
	kind := id.GroupKind()
	return i.unlisted[kind] == nil || i.narrow[Place{kind, id.Namespace}]
}

// Unlisted says why not all objects of a kind are known; nil if they are.
func (i *Inventory) Unlisted(kind schema.GroupKind) error { return i.unlisted[kind] }

// AllUnlisted are the kinds whose objects are not all known, in order.
func (i *Inventory) AllUnlisted() []schema.GroupKind {
	return slices.SortedFunc(maps.Keys(i.unlisted), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
}

// Of are the objects of a release, in the order of their names.
func (i *Inventory) Of(release string) []Head {
	var heads []Head
	for _, head := range i.heads {
		if head.IsOf(release) {
			heads = append(heads, *head)
		}
	}
	slices.SortFunc(heads, func(a, b Head) int { return kinds.Compare(a.ID, b.ID) })
	return heads
}

// Owner names the release that has an object, if another than this one does.
func (i *Inventory) Owner(id kinds.ID, release string) (string, bool) {
	head, _ := i.Find(id)
	return head.Owner(release)
}
