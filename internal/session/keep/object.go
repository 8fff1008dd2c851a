package keep

import (
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A kept is the state of an object of the release. The Keeper's lock guards it.
type kept struct {
	manifest *payload.Manifest
	id       kinds.ID
	resource cluster.Resource // known as soon as its kind is watched
	watch    *kindWatch

	applied *string      // the version that the apply has left, once it is done with the object
	isKept  bool         // otherwise it is not repaired
	early   *observation // of an object that is not kept yet

	// the version in which the object is known to be in sync, or was checked last
	version       string
	mayDiffer     bool                     // from the release
	seen          *objectmeta.LiveMetadata // its metadata in that version; nil if it did not exist, or is not known
	exists        bool                     // although it could not be repaired: objects that need it can be
	isTerminating bool                     // it can be created again only when it is gone
	mayBeDone     bool                     // it is a Job that was written: it may have run to its end
	observations  int                      // how many; a repair compares them before and after
	problem       *Event                   // the last report on an object that is contested or failing
	contention    contention
	// of a resync that waits for the check: receives whether it has found what no watch had shown
	checked chan<- bool
}

// An observation is the last observed state of an object.
type observation struct {
	head    *objectmeta.LiveMetadata // nil if it did not exist
	version string
}

// observe updates an object by metadata that a watch has shown.
func (k *Keeper) observe(id kinds.ID, head objectmeta.LiveMetadata) {
	k.mu.Lock()
	o := k.objects[id]
	if o != nil && !o.isKept {
		o.early = &observation{&head, head.ResourceVersion}
	}
	// else another object has the label, or the version is known already
	isNewer := o != nil && o.isKept && o.isNewer(head)
	k.mu.Unlock()
	if !isNewer {
		return
	}
	if k.repairer.Redefine(head) {
		k.checkAll(id.Name)
	}
	isUntouched := k.repairer.IsUntouched(o.manifest, head)
	mayBeDone := isUntouched && k.repairer.IsUnfinished(o.manifest)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !o.isNewer(head) { // any more
		return
	}
	wasMissing := o.isMissing()
	o.observations++
	o.isTerminating = head.Terminating
	if isUntouched || head.Terminating {
		o.version, o.mayDiffer, o.seen = head.ResourceVersion, false, nil
	} else {
		k.suspectDrift(o, &head)
	}
	if isUntouched {
		o.noteInSync(k)
	}
	if wasMissing && !o.isMissing() && isPrerequisite(o.id) {
		k.retryAll()
	}
	if mayBeDone {
		o.mayBeDone = true
		k.queue.Add(o)
	}
}

// isNewer reports whether metadata is newer than the known version of an object. The lock is held.
func (o *kept) isNewer(head objectmeta.LiveMetadata) bool {
	return o.version != head.ResourceVersion && !resourcewatch.IsOlder(head.ResourceVersion, o.version)
}

// observeAbsence records that an object is not in a watch any more: it was deleted, or has lost its label. The lock is
// held.
func (k *Keeper) observeAbsence(o *kept, version string) {
	switch {
	case !o.isKept:
		o.early = &observation{version: version}
	case !resourcewatch.IsOlder(version, o.version):
		k.check(o)
	}
}

// check has an object read, and repaired if it differs. The lock is held.
func (k *Keeper) check(o *kept) {
	o.observations++
	o.isTerminating, o.exists = false, false
	k.suspectDrift(o, nil)
}

// suspectDrift has an object repaired if it differs from the release. The lock is held.
func (k *Keeper) suspectDrift(o *kept, seen *objectmeta.LiveMetadata) {
	if !o.mayDiffer {
		o.contention.driftedAt = time.Now()
	}
	o.mayDiffer, o.seen = true, seen
	if !k.failing[o] || seen == nil { // else it is tried again after its pause, however often it is written
		k.queueRepair(o)
	}
}

// checkAll checks all objects of a definition that has changed: the server may treat them differently, which does not
// show in their metadata.
func (k *Keeper) checkAll(definition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.objects {
		if o.isKept && o.definition() == definition {
			k.check(o)
		}
	}
}

// definition returns the name of the CustomResourceDefinition of an object, if it has one.
func (o *kept) definition() string { return o.resource.GroupResource().String() }

// isMissing reports whether an object does not exist, as far as is known. The lock is held.
func (o *kept) isMissing() bool {
	return o != nil && (o.isTerminating || o.mayDiffer && o.seen == nil && !o.exists)
}

// queueRepair queues an object: at once, or after the pause of a contention. The lock is held.
func (k *Keeper) queueRepair(o *kept) {
	if pause := o.contention.pause(time.Now()); pause > 0 {
		k.queue.AddAfter(o, pause)
		return
	}
	k.queue.Add(o)
}
