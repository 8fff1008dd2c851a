package keep

import (
	"slices"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// The first object of a kind that is taken over begins the watch of that kind. From then on the other
// objects of the kind are seen, too: what is seen of them before they are taken over, is looked at
// when they are.

// A glimpse is what was seen last of an object that is not kept yet.
type glimpse struct {
	head    *inventory.Head // nil if it was not there
	version string
}

// isNewer says whether a glimpse is of a later version than the one that the apply has left.
func (g *glimpse) isNewer(applied string) bool {
	return g != nil && g.version != applied && !vigil.IsOlder(g.version, applied)
}

// Take takes over an object that is applied. Nobody else may write it from then on.
func (k *Keeper) Take(applied object.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.payload[applied.Manifest]; o != nil {
		o.applied = &applied.Version
		k.queue.Add(o)
	}
}

// keep begins to keep an object that was taken over, and says whether it is kept. Where its kind is,
// the server must say: if it does not, that is tried again.
func (k *Keeper) keep(o *kept) bool {
	k.mu.Lock()
	isKept, applied := o.isKept, o.applied
	k.mu.Unlock()
	if isKept || k.ctx.Err() != nil {
		return isKept
	}
	resource, err := k.repairer.Place(o.manifest)
	if err != nil {
		k.queue.AddRateLimited(o)
		return false
	}
	k.queue.Forget(o)
	k.repairer.Learn(resource)
	k.mu.Lock()
	k.watchKind(resource)
	seen := o.glimpse
	o.isKept, o.version, o.glimpse = true, *applied, nil
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		o.version = "" // so that the next look shows what it defines now
	}
	k.inOrder = append(k.inOrder, o)
	k.mu.Unlock()
	switch {
	case !seen.isNewer(*applied):
	case seen.head != nil:
		k.see(o.id, *seen.head)
	default:
		k.miss(o.id, seen.version)
	}
	return true
}

// watchKind begins to watch the objects of a kind, if they are not watched yet. The lock is held.
func (k *Keeper) watchKind(resource cluster.Resource) {
	isOfKind := func(v *view) bool { return v.resource.GroupKind() == resource.GroupKind() }
	if slices.ContainsFunc(k.views, isOfKind) {
		return
	}
	v := &view{keeper: k, resource: resource}
	k.views = append(k.views, v)
	for _, o := range k.payload {
		if o.id.GroupKind() != resource.GroupKind() {
			continue
		}
		if !resource.Namespaced {
			o.id.Namespace = "" // whatever the manifest says
		}
		o.view, o.resource = v, resource
		k.objects[o.id] = o
	}
	k.running.Go(func() { v.watch(k.ctx) })
}
