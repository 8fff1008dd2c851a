// Package inventory finds what releases have on a cluster, from metadata alone: one
// list for each kind, of the objects that carry the label of a release. It knows what
// is there before an apply, what of it is ours, and what has been left behind.
//
// It reads no object's body, changes nothing, and judges nothing.
//
// Take is the call to start from.
package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
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
	var fields, others any // whose order depends on who has written the JSON
	if json.Unmarshal([]byte(e.fields), &fields) != nil || json.Unmarshal([]byte(other.fields), &others) != nil {
		return false
	}
	return reflect.DeepEqual(fields, others)
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

// An Inventory is what releases have on a cluster.
type Inventory struct {
	heads    map[kinds.ID]Head
	unlisted map[schema.GroupKind]error
}

// Take asks for the objects of some kinds. Kinds that the cluster does not have have none;
// for those that can't be listed, because that is forbidden or their API does not answer,
// Unlisted says why.
func Take(ctx context.Context, c *cluster.Cluster, of []schema.GroupKind) (*Inventory, error) {
	found := &Inventory{heads: map[kinds.ID]Head{}, unlisted: map[schema.GroupKind]error{}}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for _, kind := range unique(of) {
		group.Go(func() error {
			heads, err := list(ctx, c, kind)
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
			return nil
		})
	}
	return found, group.Wait()
}

// unique leaves out what is there twice.
func unique(of []schema.GroupKind) []schema.GroupKind {
	seen := map[schema.GroupKind]bool{}
	return slices.DeleteFunc(slices.Clone(of), func(kind schema.GroupKind) bool {
		before := seen[kind]
		seen[kind] = true
		return before
	})
}

// list asks for the labelled objects of one kind.
func list(ctx context.Context, c *cluster.Cluster, kind schema.GroupKind) ([]Head, error) {
	resource, err := c.FindKind(ctx, kind)
	if err != nil {
		return nil, err
	}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.Metadata.Resource(resource.GroupVersionResource).List(ctx, options)
	})
	var heads []Head
	err = pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: Label}, func(item runtime.Object) error {
		heads = append(heads, HeadOf(resource, item.(*metav1.PartialObjectMetadata)))
		return nil
	})
	return heads, err
}

// HeadOf reads what there is to know of an object.
func HeadOf(resource cluster.Resource, object metav1.Object) Head {
	head := Head{
		ID:       kinds.ID{Group: resource.Group, Kind: resource.Kind, Namespace: object.GetNamespace(), Name: object.GetName()},
		Resource: resource, UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(), Generation: object.GetGeneration(),
		Release: object.GetLabels()[Label], Terminating: object.GetDeletionTimestamp() != nil, Created: object.GetCreationTimestamp().Time,
	}
	for _, entry := range object.GetManagedFields() {
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

// entryOf reads our entry. Neither its time nor its fields need be there.
func entryOf(entry metav1.ManagedFieldsEntry) Entry {
	var ours Entry
	if entry.Time != nil {
		ours.Since = entry.Time.Time
	}
	if entry.FieldsV1 != nil {
		ours.fields = string(entry.FieldsV1.GetRawBytes())
	}
	return ours
}

// Find is the object of that name, if a release has it.
func (i *Inventory) Find(id kinds.ID) (Head, bool) {
	head, found := i.heads[id]
	return head, found
}

// Unlisted says why the objects of a kind are not known; nil if they are.
func (i *Inventory) Unlisted(kind schema.GroupKind) error { return i.unlisted[kind] }

// AllUnlisted are the kinds whose objects are not known, in order.
func (i *Inventory) AllUnlisted() []schema.GroupKind {
	return slices.SortedFunc(maps.Keys(i.unlisted), func(a, b schema.GroupKind) int { return cmp.Compare(a.String(), b.String()) })
}

// Of are the objects of a release, in the order of their names.
func (i *Inventory) Of(release string) []Head {
	var heads []Head
	for _, head := range i.heads {
		if head.IsOf(release) {
			heads = append(heads, head)
		}
	}
	slices.SortFunc(heads, func(a, b Head) int { return kinds.Compare(a.ID, b.ID) })
	return heads
}

// Owner names the release that has an object, if another than this one does.
func (i *Inventory) Owner(id kinds.ID, release string) (string, bool) {
	return i.heads[id].Owner(release)
}
