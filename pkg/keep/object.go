package keep

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// A kept object is one of the release. The keeper guards what changes of it.
type kept struct {
	manifest *payload.Manifest
	id       kinds.ID
	resource cluster.Resource // which is known as soon as its kind is watched
	view     *view

	applied *string  // the version that the apply has left, once it is done with the object
	isKept  bool     // else nothing is done about it
	glimpse *glimpse // of one that is not kept yet

	version   string          // in which it is known to be as it should, or to have been looked at last
	isSuspect bool            // it may not be as it should
	seen      *inventory.Head // how it was seen then; nil if it was not there, or that is not known
	isThere   bool            // although it could not be repaired: others that need it can be
	isLeaving bool            // its end was asked for: only when it is gone, it can be made again
	mayBeDone bool            // it is a Job that was written: it may have run to its end
	mark      int             // counts what is seen of it, so that it is known what came in between
	isTold    bool            // of what keeps it from being repaired
	quarrel   quarrel
	audit     chan<- finding // the slow pass waits for what is found; nil if it does not
}

// see takes in how an object is.
func (k *Keeper) see(id kinds.ID, head inventory.Head) {
	k.mu.Lock()
	o := k.objects[id]
	if o != nil && !o.isKept {
		o.glimpse = &glimpse{&head, head.ResourceVersion}
	}
	isNews := o != nil && o.isKept && o.isNews(head) // else somebody has copied the label, or it is known already
	k.mu.Unlock()
	if !isNews {
		return
	}
	if k.repairer.Redefine(head) {
		k.doubtAll(id.Name)
	}
	isUntouched := k.repairer.IsUntouched(o.manifest, head)
	mayBeDone := isUntouched && k.repairer.IsUnfinished(o.manifest)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !o.isNews(head) { // any more
		return
	}
	wasMissing := o.isMissing()
	o.mark++
	o.isLeaving = head.Terminating
	switch {
	case isUntouched:
		o.version, o.isSuspect, o.seen = head.ResourceVersion, false, nil
		k.settle(o)
	case head.Terminating:
		o.version, o.isSuspect, o.seen = head.ResourceVersion, false, nil
	default:
		k.suspect(o, &head)
	}
	if wasMissing && !o.isMissing() && isFoundation(o.id) {
		k.wakeAll()
	}
	if mayBeDone {
		o.mayBeDone = true
		k.queue.Add(o)
	}
}

// isNews says whether nothing newer is known of an object. The lock is held.
func (o *kept) isNews(head inventory.Head) bool {
	return o.version != head.ResourceVersion && !vigil.IsOlder(head.ResourceVersion, o.version)
}

// miss takes in that an object is out of sight: deleted, or without its label.
func (k *Keeper) miss(id kinds.ID, version string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.objects[id]; o != nil {
		k.missOne(o, version)
	}
}

// missOne is miss for an object of the release. The lock is held.
func (k *Keeper) missOne(o *kept, version string) {
	switch {
	case !o.isKept:
		o.glimpse = &glimpse{version: version}
	case !vigil.IsOlder(version, o.version):
		k.doubt(o)
	}
}

// doubt makes an object one that is asked for. The lock is held.
func (k *Keeper) doubt(o *kept) {
	o.mark++
	o.isLeaving, o.isThere = false, false
	k.suspect(o, nil)
}

// suspect makes an object one that is looked at. The lock is held.
func (k *Keeper) suspect(o *kept, seen *inventory.Head) {
	if !o.isSuspect {
		o.quarrel.drifted = time.Now()
	}
	o.isSuspect, o.seen = true, seen
	if !k.troubled[o] || seen == nil { // else its turn comes, however often others write it
		k.mendSoon(o)
	}
}

// doubtAll doubts all objects of a definition, which is another than it was: the server may say
// otherwise of them, and leaves no trace in them.
func (k *Keeper) doubtAll(definition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.objects {
		if o.isKept && o.definition() == definition {
			k.doubt(o)
		}
	}
}

// definition is the name of the CustomResourceDefinition of an object, if it has one.
func (o *kept) definition() string { return o.resource.Resource + "." + o.resource.Group }

// needs are the objects without which one can't be.
func (o *kept) needs() []kinds.ID {
	needs := []kinds.ID{named(kinds.CustomResourceDefinition, o.definition())}
	if o.id.Namespace != "" {
		needs = append(needs, named(kinds.Namespace, o.id.Namespace))
	}
	return needs
}

func named(kind schema.GroupKind, name string) kinds.ID {
	return kinds.ID{Group: kind.Group, Kind: kind.Kind, Name: name}
}

// isMissing says whether an object is not there, as far as is known. The lock is held.
func (o *kept) isMissing() bool {
	return o != nil && (o.isLeaving || o.isSuspect && o.seen == nil && !o.isThere)
}

// mendSoon queues an object: at once, but for one that others quarrel about. The lock is held.
func (k *Keeper) mendSoon(o *kept) {
	if pause := o.quarrel.pause(time.Now()); pause > 0 {
		k.queue.AddAfter(o, pause)
		return
	}
	k.queue.Add(o)
}
