package state

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
)

// An Object is an object of a release that exists on the cluster, or should exist.
type Object struct {
	Object  kinds.ID        `json:"object"`
	State   why.ObjectState `json:"state"`
	Message string          `json:"message,omitempty"` // why it is not ready
	Created *time.Time      `json:"created,omitempty"` // absent if it does not exist
	Owners  []string        `json:"owners,omitempty"`  // the managers that own its fields
}

// An ObjectList contains the objects of a release.
type ObjectList struct {
	Release string   `json:"release"`
	Version string   `json:"version,omitempty"`
	Objects []Object `json:"objects"` // sorted by kind and name
	// objects that were deleted since they were applied, whose names are not known
	Missing int      `json:"missing,omitempty"`
	Unknown []string `json:"unknown,omitempty"` // resources that could not be read
}

// Objects returns the objects of the release of a record: those that exist on the cluster, and those that should.
// Without the manifests that were applied, missing objects are only counted. Owners are not read.
func (r *Reader) Objects(ctx context.Context, known *record.Record) (*ObjectList, error) {
	facts := r.gather(ctx, known)
	if facts.UnlistedErr != nil {
		return nil, facts.UnlistedErr
	}
	return objectsOf(facts.Live, facts.Explain(ctx, r.Cluster, r.Namespace)), context.Cause(ctx)
}

// AllObjects returns the objects of the release at the time of the status, as Reader.Objects does; nil if they could
// not be listed.
func (s *Status) AllObjects() *ObjectList {
	if s.live == nil {
		return nil
	}
	return objectsOf(s.live, s.answer)
}

// objectsOf returns the objects of a release, from those on the cluster and the answer on the release.
func objectsOf(live *inventory.Inventory, answer *why.ReleaseAnswer) *ObjectList {
	list := &ObjectList{
		Release: answer.Release,
		Version: answer.Version,
		Objects: []Object{},
		Missing: answer.Missing,
		Unknown: answer.Unknown,
	}
	states := map[kinds.ID]*why.Answer{}
	for _, found := range answer.Objects {
		states[found.Object] = found
	}
	for _, head := range live.Of(answer.Release) {
		shown := Object{Object: head.ID, State: why.Ready, Created: &head.Created}
		shown.explain(states[head.ID])
		delete(states, head.ID)
		list.Objects = append(list.Objects, shown)
	}
	for id, found := range states {
		shown := Object{Object: id}
		shown.explain(found)
		list.Objects = append(list.Objects, shown)
	}
	for _, id := range answer.MissingObjects {
		list.Objects = append(list.Objects,
			Object{Object: id, State: why.Absent, Message: "deleted since it was applied"})
	}
	list.Missing = max(0, list.Missing-len(answer.MissingObjects))
	slices.SortFunc(list.Objects, func(a, b Object) int { return kinds.Compare(a.Object, b.Object) })
	return list
}

// explain sets the state of an object if it is not ready or differs from the release.
func (o *Object) explain(answer *why.Answer) {
	if answer == nil {
		return
	}
	o.State = answer.State
	if len(answer.Messages) > 0 {
		o.Message = answer.Messages[0].Text
	}
}

// AddOwners adds the managers that own fields of the objects, which takes another list of each kind.
func (r *Reader) AddOwners(ctx context.Context, list *ObjectList) error {
	indexes := map[kinds.ID]int{}
	var existing []schema.GroupKind
	for i, shown := range list.Objects {
		indexes[shown.Object] = i
		if kind := shown.Object.GroupKind(); shown.Created != nil && !slices.Contains(existing, kind) {
			existing = append(existing, kind)
		}
	}
	for _, kind := range existing {
		resource, err := r.Cluster.FindKind(ctx, kind)
		if err == nil {
			err = r.Cluster.EachMetadata(ctx, resource, "",
				metav1.ListOptions{LabelSelector: objectmeta.ReleaseLabel + "=" + list.Release},
				func(m *metav1.PartialObjectMetadata) {
					if i, isShown := indexes[kinds.NewID(kind, m.Namespace, m.Name)]; isShown {
						list.Objects[i].Owners = ownersOf(m)
					}
				})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownersOf returns the managers that own fields of an object, except of its status and scale.
func ownersOf(object metav1.Object) []string {
	var owners []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" {
			owners = append(owners, entry.Manager)
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}
