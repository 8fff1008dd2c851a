package keep

import (
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// An object that could not be repaired is tried again after a pause, which gets longer.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

// work repairs objects until the queue is shut down.
func (k *Keeper) work() {
	for {
		o, isOver := k.queue.Get()
		if isOver {
			return
		}
		if k.startKeeping(o) {
			k.repair(o)
		}
		k.queue.Done(o)
	}
}

// repair repairs an object, if it still differs from the release.
func (k *Keeper) repair(o *objectState) {
	objects := k.lock()
	before, checked, mayBeFinished := o.live, o.checked, o.mayBeFinished
	// A broken watch does not show when the object is deleted.
	isTerminating := before.isTerminating && (checked == nil || !objects.isBroken(o.watch, o.id.Namespace))
	isDue := (before.mayDiffer || checked != nil) && !isTerminating && !objects.isBlocked(o)
	if pause := o.contention.pause(time.Now()); isDue && checked == nil && pause > 0 {
		isDue = false // the object was queued before the contention was noticed
		k.queue.AddAfter(o, pause)
	}
	o.checked, o.mayBeFinished = nil, false
	objects.unlock()
	if mayBeFinished && k.ctx.Err() == nil {
		k.markFinished(o)
	}
	wasMissed := false
	if isDue && k.ctx.Err() == nil {
		repaired := k.repairer.Repair(o.manifest, before.observed)
		if repaired.Err != nil {
			k.repairFailed(o, repaired)
		} else {
			wasMissed = k.repairSucceeded(o, before, repaired) && !before.mayDiffer
		}
	}
	k.endProblem(o)
	if checked != nil {
		checked <- wasMissed
	}
}

// markFinished records that a Job has finished, if it has.
func (k *Keeper) markFinished(o *objectState) {
	if err := k.repairer.NoteFinished(o.manifest); err == nil {
		k.queue.Forget(o)
		return
	}
	objects := k.lock()
	o.mayBeFinished = true
	objects.unlock()
	k.queue.AddRateLimited(o)
}

// isBlocked reports whether the namespace or the definition of an object is missing: without them, no repair succeeds.
func (l *lockedObjects) isBlocked(o *objectState) bool {
	return slices.ContainsFunc(objectmeta.Containers(o.id, o.resource), func(id kinds.ID) bool {
		return l.byID[id].isMissing()
	})
}

// A repair is reported as failing when it has failed this often.
const reportAfter = 4

// repairFailed records that an object could not be repaired.
func (k *Keeper) repairFailed(o *objectState, repaired object.RepairResult) {
	objects := k.lock()
	wasMissing := o.isMissing()
	objects.failing[o], o.live.mayDiffer, o.live.exists = true, true, !wasMissing
	if repaired.IsLooked {
		o.live.exists = repaired.Before.UID != "" && !repaired.Before.Terminating
	}
	if wasMissing && !o.isMissing() && isPrerequisite(o.id) {
		objects.retryAll()
	}
	k.queue.AddRateLimited(o)
	isNew := (o.problem == nil || o.problem.Type != Failing) && k.queue.NumRequeues(o) >= reportAfter
	objects.unlock()
	if isNew {
		k.report(o, Event{
			Type:    Failing,
			Object:  &o.id,
			File:    o.manifest.Path,
			Reason:  repaired.Err.Reason,
			Message: printable.Line(repaired.Err.Err.Error()),
		})
	}
}

// repairSucceeded records the result of a repair, and reports whether the object had to be changed. Before is the known
// state of the object when the repair began.
func (k *Keeper) repairSucceeded(o *objectState, before liveState, repaired object.RepairResult) (hasChanged bool) {
	hasChanged = repaired.Action != object.Unchanged && repaired.Action != object.Kept
	objects := k.lock()
	wasMissing := o.isMissing()
	live := &o.live
	isLatest := live.observations == before.observations
	if isLatest {
		live.isTerminating = repaired.Now.Terminating
	}
	if version := repaired.Now.ResourceVersion; !resourcewatch.IsOlder(version, live.version) {
		live.version = version
	}
	if isLatest || live.observed != nil && !resourcewatch.IsOlder(live.version, live.observed.ResourceVersion) {
		live.mayDiffer, live.observed = false, nil
	}
	pause := o.contention.observe(time.Now(), hasChanged)
	objects.markInSync(o)
	if live.mayDiffer { // a watch has shown another change meanwhile
		objects.queueRepair(o)
	}
	if isPrerequisite(o.id) && (wasMissing || hasChanged) {
		objects.retryAll()
	}
	objects.unlock()
	if !hasChanged {
		return false
	}
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		k.checkAll(o.id.Name) // the objects of the definition were written by another one meanwhile
	}
	k.emit(Event{
		Type:    Repaired,
		Object:  &o.id,
		File:    o.manifest.Path,
		Action:  repaired.Action,
		Lost:    repaired.Lost,
		Message: object.LossesInWords(repaired.Lost),
	})
	if pause > 0 {
		k.reportContention(o, repaired.Now.UID, repaired.Lost, pause)
	}
	return true
}

// markInSync records that an object matches the release. If it could not be repaired before, others of its kind are
// tried again, too.
func (l *lockedObjects) markInSync(o *objectState) {
	l.queue.Forget(o)
	if o.problem != nil {
		l.queue.Add(o) // endProblem then ends the problem
	}
	if !l.failing[o] {
		return
	}
	delete(l.failing, o)
	for other := range l.failing {
		if other.watch == o.watch {
			l.retry(other)
		}
	}
}

// retryAll repairs at once all objects that wait for another try: an object that others need is back.
func (l *lockedObjects) retryAll() {
	for _, o := range l.byID {
		if o.live.mayDiffer {
			l.retry(o)
		}
	}
}

func (l *lockedObjects) retry(o *objectState) {
	l.queue.Forget(o)
	l.queueRepair(o)
}

// isPrerequisite reports whether other objects need an object in order to exist.
func isPrerequisite(id kinds.ID) bool {
	return id.GroupKind() == kinds.Namespace || kinds.Extends(id.GroupKind())
}
