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
	objects := k.lock()
	o := objects.steps[applied.StepID]
	if o != nil {
		if o.phase != keeping {
			o.phase, o.live.version = taken, applied.Version
		}
		k.queue.Add(o)
	}
	objects.unlock()
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

// startKeeping begins to keep an object that was taken over, and reports whether the object is kept. First,
// startKeeping discovers the resource of the kind; if the discovery fails, the object is queued again.
func (k *Keeper) startKeeping(o *objectState) bool {
	objects := k.lock()
	isKept := o.phase == keeping
	objects.unlock()
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
	objects = k.lock()
	k.watchKind(objects, resource)
	early, applied := o.early, o.live.version
	o.phase, o.early = keeping, nil
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		o.live.version = "" // so that the next check reads the definition
	}
	objects.kept = append(objects.kept, o)
	isNewer := early != nil && early.version != applied && !resourcewatch.IsOlder(early.version, applied)
	if isNewer && early.head == nil {
		objects.observeAbsence(o, early.version)
	}
	objects.unlock()
	if isNewer && early.head != nil {
		k.observe(o.id, *early.head)
	}
	return true
}

// watchKind begins to watch the objects of a kind, if they are not watched yet.
func (k *Keeper) watchKind(objects *lockedObjects, resource cluster.Resource) {
	isOfKind := func(w *kindWatch) bool { return w.resource.GroupKind() == resource.GroupKind() }
	if slices.ContainsFunc(objects.watches, isOfKind) {
		return
	}
	w := &kindWatch{keeper: k, resource: resource, errs: map[string]error{}}
	objects.watches = append(objects.watches, w)
	for _, o := range objects.steps {
		if o.id.GroupKind() != resource.GroupKind() {
			continue
		}
		o.id, o.watch, o.resource = resource.Scoped(o.id), w, resource
		objects.byID[o.id] = o
	}
	k.running.Go(func() { w.run(k.ctx) })
}
