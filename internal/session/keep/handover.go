package keep

import (
	"slices"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// Take takes over an object that was applied. No other program may write it for the release from then on.
//
// The first object of a kind begins the watch of that kind. The watch shows the other objects of the kind, too: those
// observations are evaluated when the objects are taken over.
func (k *Keeper) Take(applied object.Change) {
	k.mu.Lock()
	o := k.steps[applied.StepID]
	if o != nil {
		if o.phase != keeping {
			o.phase, o.version = taken, applied.Version
		}
		k.queue.Add(o)
	}
	k.mu.Unlock()
	if o != nil && k.options.WasComplete && applied.Action.HasChanged() {
		k.emit(Event{
			Type:    Repaired,
			Object:  &applied.ID,
			File:    applied.Path,
			Action:  applied.Action,
			Lost:    applied.Lost,
			Message: object.LossesInWords(applied.Lost),
		})
	}
}

// startKeeping begins to keep an object that was taken over, and reports whether it is kept. It discovers the resource
// of the kind first; if that fails, it is tried again.
func (k *Keeper) startKeeping(o *objectState) bool {
	k.mu.Lock()
	isKept := o.phase == keeping
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
	early, applied := o.early, o.version
	o.phase, o.early = keeping, nil
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		o.version = "" // so that the next check reads its definition
	}
	k.inOrder = append(k.inOrder, o)
	isNewer := early != nil && early.version != applied && !resourcewatch.IsOlder(early.version, applied)
	if isNewer && early.head == nil {
		k.observeAbsence(o, early.version)
	}
	k.mu.Unlock()
	if isNewer && early.head != nil {
		k.observe(o.id, *early.head)
	}
	return true
}

// watchKind begins to watch the objects of a kind, if they are not watched yet. The lock is held.
func (k *Keeper) watchKind(resource cluster.Resource) {
	isOfKind := func(w *kindWatch) bool { return w.resource.GroupKind() == resource.GroupKind() }
	if slices.ContainsFunc(k.watches, isOfKind) {
		return
	}
	w := &kindWatch{keeper: k, resource: resource, errs: map[string]error{}}
	k.watches = append(k.watches, w)
	for _, o := range k.steps {
		if o.id.GroupKind() != resource.GroupKind() {
			continue
		}
		o.id, o.watch, o.resource = resource.Scoped(o.id), w, resource
		k.objects[o.id] = o
	}
	k.running.Go(func() { w.run(k.ctx) })
}
