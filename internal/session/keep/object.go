package keep

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A phase is how far the hand-over of an object is. Objects are repaired only in the last one.
type phase int

const (
	untouched phase = iota // the apply has not passed the object to Take
	taken                  // the resource of its kind is not known yet
	keeping
)

// An objectState is the state of an object of the release. Only the holder of lockedObjects reads and changes it,
// except for the first four fields, which do not change any more once the object is kept.
type objectState struct {
	manifest *payload.Manifest
	id       kinds.ID
	resource cluster.Resource // known as soon as its kind is watched
	watch    *kindWatch

	phase phase
	early *observation // the last observation before the phase keeping
	live  liveState

	mayBeFinished bool   // a Job that was written may have finished
	problem       *Event // the last report on a contested or failing object
	contention    contention
	checked       chan<- bool // set by a resync: receives whether it has found a difference that no watch had shown
}

// A liveState is the known state of an object on the cluster.
type liveState struct {
	version       string                   // last version that was applied, checked, or known to be in sync
	mayDiffer     bool                     // the object may differ from the release
	observed      *objectmeta.LiveMetadata // metadata that may differ; nil if the object did not exist or was not read
	exists        bool                     // although it could not be repaired: dependents can be repaired
	isTerminating bool                     // the object can be created again only after its deletion
	observations  int                      // a repair compares the number of observations before and after
}

// An observation is the last observed state of an object.
type observation struct {
	head    *objectmeta.LiveMetadata // nil if it did not exist
	version string
}

// lockedObjects are the objects of a release while their lock is held. Keeper.lock returns them.
type lockedObjects struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[*objectState] // objects that may have to be repaired
	steps   map[object.StepID]*objectState                     // all objects of the release
	byID    map[kinds.ID]*objectState                          // those of the watched kinds
	kept    []*objectState                                     // those in the phase keeping
	failing map[*objectState]bool                              // those that could not be repaired
	watches []*kindWatch
}

// lock acquires the lock of the objects. The caller must unlock it.
func (k *Keeper) lock() *lockedObjects {
	k.guarded.mu.Lock()
	return &k.guarded
}

func (l *lockedObjects) unlock() { l.mu.Unlock() }

// observe updates an object by metadata that a watch has shown.
func (k *Keeper) observe(id kinds.ID, head objectmeta.LiveMetadata) {
	objects := k.lock()
	o := objects.byID[id]
	if o != nil && o.phase != keeping {
		o.early = &observation{&head, head.ResourceVersion}
	}
	// otherwise another object has the label, or the version is known already
	isNewer := o != nil && o.phase == keeping && o.live.isOlderThan(head)
	objects.unlock()
	if !isNewer {
		return
	}
	if k.repairer.Redefine(head) {
		k.checkAll(id.Name)
	}
	isUntouched := k.repairer.IsUntouched(o.manifest, head)
	mayBeFinished := isUntouched && k.repairer.IsUnfinished(o.manifest)
	objects = k.lock()
	defer objects.unlock()
	if !o.live.isOlderThan(head) { // another goroutine has observed a newer version meanwhile
		return
	}
	wasMissing := o.isMissing()
	o.live.observations++
	o.live.isTerminating = head.Terminating
	if isUntouched || head.Terminating {
		o.live.version, o.live.mayDiffer, o.live.observed = head.ResourceVersion, false, nil
	} else {
		objects.suspectDrift(o, &head)
	}
	if isUntouched {
		objects.markInSync(o)
	}
	if wasMissing && !o.isMissing() && isPrerequisite(o.id) {
		objects.retryAll()
	}
	if mayBeFinished {
		o.mayBeFinished = true
		objects.queue.Add(o)
	}
}

// isOlderThan reports whether the known version of an object is older than metadata.
func (s *liveState) isOlderThan(head objectmeta.LiveMetadata) bool {
	return s.version != head.ResourceVersion && !resourcewatch.IsOlder(head.ResourceVersion, s.version)
}

// observeAbsence records that a watch does not show an object any more: it was deleted, or has lost its label.
func (l *lockedObjects) observeAbsence(o *objectState, version string) {
	switch {
	case o.phase != keeping:
		o.early = &observation{version: version}
	case !resourcewatch.IsOlder(version, o.live.version):
		l.check(o)
	}
}

// check requests that an object is read, and repaired if it differs.
func (l *lockedObjects) check(o *objectState) {
	o.live.observations++
	o.live.isTerminating, o.live.exists = false, false
	l.suspectDrift(o, nil)
}

// suspectDrift requests a repair of an object that differs from the release. Observed is its metadata; nil if unknown.
func (l *lockedObjects) suspectDrift(o *objectState, observed *objectmeta.LiveMetadata) {
	if !o.live.mayDiffer {
		o.contention.driftedAt = time.Now()
	}
	o.live.mayDiffer, o.live.observed = true, observed
	// a failing repair is retried after its pause, however often the object is written
	if !l.failing[o] || observed == nil {
		l.queueRepair(o)
	}
}

// checkAll checks all objects of a definition that has changed: the server may treat them differently, which does not
// show in their metadata.
func (k *Keeper) checkAll(definition string) {
	objects := k.lock()
	defer objects.unlock()
	for _, o := range objects.byID {
		if o.phase == keeping && o.definition() == definition {
			objects.check(o)
		}
	}
}

// definition returns the name of the CustomResourceDefinition of an object, if it has one.
func (o *objectState) definition() string { return o.resource.GroupResource().String() }

// isMissing reports whether an object does not exist, as far as is known.
func (o *objectState) isMissing() bool {
	return o != nil && (o.live.isTerminating || o.live.mayDiffer && o.live.observed == nil && !o.live.exists)
}

// queueRepair queues an object: at once, or after the pause of a contention.
func (l *lockedObjects) queueRepair(o *objectState) {
	if pause := o.contention.pause(time.Now()); pause > 0 {
		l.queue.AddAfter(o, pause)
		return
	}
	l.queue.Add(o)
}
