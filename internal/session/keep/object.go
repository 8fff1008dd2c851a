package keep

import (
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A phase is how far the hand-over of an object is. Objects are repaired only in the last one.
type phase int

const (
	untouched phase = iota // the apply has not passed the object to Take
	taken                  // the resource of its kind is not known yet
	keeping
)

// An objectState is the state of an object of the release. The Keeper's lock guards it.
type objectState struct {
	manifest *payload.Manifest
	id       kinds.ID
	resource cluster.Resource // known as soon as its kind is watched
	watch    *kindWatch

	phase phase
	early *observation // the last observation before the phase keeping

	version       string                   // of the object when it was applied, checked last, or known to be in sync
	mayDiffer     bool                     // the object may differ from the release
	observed      *objectmeta.LiveMetadata // metadata that may differ; nil if the object did not exist or was not read
	exists        bool                     // although it could not be repaired: dependents can be repaired
	isTerminating bool                     // the object can be created again only after its deletion
	mayBeFinished bool                     // a Job that was written may have finished
	observations  int                      // a repair compares the number of observations before and after
	problem       *Event                   // the last report on a contested or failing object
	contention    contention
	// checked belongs to a resync that waits for the check: it receives whether no watch had shown the difference.
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
	if o != nil && o.phase != keeping {
		o.early = &observation{&head, head.ResourceVersion}
	}
	// else another object has the label, or the version is known already
	isNewer := o != nil && o.phase == keeping && o.isNewer(head)
	k.mu.Unlock()
	if !isNewer {
		return
	}
	if k.repairer.Redefine(head) {
		k.checkAll(id.Name)
	}
	isUntouched := k.repairer.IsUntouched(o.manifest, head)
	mayBeFinished := isUntouched && k.repairer.IsUnfinished(o.manifest)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !o.isNewer(head) { // any more
		return
	}
	wasMissing := o.isMissing()
	o.observations++
	o.isTerminating = head.Terminating
	if isUntouched || head.Terminating {
		o.version, o.mayDiffer, o.observed = head.ResourceVersion, false, nil
	} else {
		k.suspectDrift(o, &head)
	}
	if isUntouched {
		k.markInSync(o)
	}
	if wasMissing && !o.isMissing() && isPrerequisite(o.id) {
		k.retryAll()
	}
	if mayBeFinished {
		o.mayBeFinished = true
		k.queue.Add(o)
	}
}

// isNewer reports whether metadata is newer than the known version of an object. The lock is held.
func (o *objectState) isNewer(head objectmeta.LiveMetadata) bool {
	return o.version != head.ResourceVersion && !resourcewatch.IsOlder(head.ResourceVersion, o.version)
}

// observeAbsence records that an object is not in a watch any more: it was deleted, or has lost its label. The lock is
// held.
func (k *Keeper) observeAbsence(o *objectState, version string) {
	switch {
	case o.phase != keeping:
		o.early = &observation{version: version}
	case !resourcewatch.IsOlder(version, o.version):
		k.check(o)
	}
}

// check has an object read, and repaired if it differs. The lock is held.
func (k *Keeper) check(o *objectState) {
	o.observations++
	o.isTerminating, o.exists = false, false
	k.suspectDrift(o, nil)
}

// suspectDrift has an object repaired if it differs from the release. The lock is held.
func (k *Keeper) suspectDrift(o *objectState, seen *objectmeta.LiveMetadata) {
	if !o.mayDiffer {
		o.contention.driftedAt = time.Now()
	}
	o.mayDiffer, o.observed = true, seen
	// a failing repair is retried after its pause, however often the object is written
	if !k.failing[o] || seen == nil {
		k.queueRepair(o)
	}
}

// checkAll checks all objects of a definition that has changed: the server may treat them differently, which does not
// show in their metadata.
func (k *Keeper) checkAll(definition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.objects {
		if o.phase == keeping && o.definition() == definition {
			k.check(o)
		}
	}
}

// definition returns the name of the CustomResourceDefinition of an object, if it has one.
func (o *objectState) definition() string { return o.resource.GroupResource().String() }

// isMissing reports whether an object does not exist, as far as is known. The lock is held.
func (o *objectState) isMissing() bool {
	return o != nil && (o.isTerminating || o.mayDiffer && o.observed == nil && !o.exists)
}

// queueRepair queues an object: at once, or after the pause of a contention. The lock is held.
func (k *Keeper) queueRepair(o *objectState) {
	if pause := o.contention.pause(time.Now()); pause > 0 {
		k.queue.AddAfter(o, pause)
		return
	}
	k.queue.Add(o)
}
