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
	k.mu.Lock()
	seen, observations, checked := o.observed, o.observations, o.checked
	mayDiffer, mayBeFinished := o.mayDiffer, o.mayBeFinished
	// If the watch is broken, it does not show when the object is deleted.
	isTerminating := o.isTerminating && (checked == nil || !o.watch.isBroken(o.id.Namespace))
	isDue := (mayDiffer || checked != nil) && !isTerminating && !k.isBlocked(o)
	if pause := o.contention.pause(time.Now()); isDue && checked == nil && pause > 0 {
		isDue = false // it was queued before the contention was noticed
		k.queue.AddAfter(o, pause)
	}
	o.checked, o.mayBeFinished = nil, false
	k.mu.Unlock()
	if mayBeFinished && k.ctx.Err() == nil {
		k.markFinished(o)
	}
	wasMissed := false
	if isDue && k.ctx.Err() == nil {
		repaired := k.repairer.Repair(o.manifest, seen)
		if repaired.Err != nil {
			k.repairFailed(o, repaired)
		} else {
			wasMissed = k.repairSucceeded(o, observations, repaired) && !mayDiffer
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
	k.mu.Lock()
	o.mayBeFinished = true
	k.mu.Unlock()
	k.queue.AddRateLimited(o)
}

// isBlocked reports whether the namespace or the definition of an object is missing. The object is repaired when it
// exists. The lock is held.
func (k *Keeper) isBlocked(o *objectState) bool {
	return slices.ContainsFunc(objectmeta.Containers(o.id, o.resource), func(id kinds.ID) bool {
		return k.objects[id].isMissing()
	})
}

// reportAfter is how often a repair must fail to be reported.
const reportAfter = 4

// repairFailed records that an object could not be repaired.
func (k *Keeper) repairFailed(o *objectState, found object.RepairResult) {
	k.mu.Lock()
	wasMissing := o.isMissing()
	k.failing[o], o.mayDiffer, o.exists = true, true, !wasMissing
	if found.IsLooked {
		o.exists = found.Before.UID != "" && !found.Before.Terminating
	}
	if wasMissing && !o.isMissing() && isPrerequisite(o.id) {
		k.retryAll()
	}
	k.queue.AddRateLimited(o)
	isNew := (o.problem == nil || o.problem.Type != Failing) && k.queue.NumRequeues(o) >= reportAfter
	k.mu.Unlock()
	if isNew {
		k.report(o, Event{
			Type:    Failing,
			Object:  &o.id,
			File:    o.manifest.Path,
			Reason:  found.Err.Reason,
			Message: printable.Line(found.Err.Err.Error()),
		})
	}
}

// repairSucceeded records the result of a repair, and reports whether the object had to be changed. Observations is how
// many there were when the repair began.
func (k *Keeper) repairSucceeded(o *objectState, observations int, repaired object.RepairResult) (hasChanged bool) {
	hasChanged = repaired.Action != object.Unchanged && repaired.Action != object.Kept
	k.mu.Lock()
	wasMissing := o.isMissing()
	isLatest := o.observations == observations
	if isLatest {
		o.isTerminating = repaired.Now.Terminating
	}
	if version := repaired.Now.ResourceVersion; !resourcewatch.IsOlder(version, o.version) {
		o.version = version
	}
	if isLatest || o.observed != nil && !resourcewatch.IsOlder(o.version, o.observed.ResourceVersion) {
		o.mayDiffer, o.observed = false, nil
	}
	pause := o.contention.observe(time.Now(), hasChanged)
	k.markInSync(o)
	if o.mayDiffer { // it was changed meanwhile
		k.queueRepair(o)
	}
	if isPrerequisite(o.id) && (wasMissing || hasChanged) {
		k.retryAll()
	}
	k.mu.Unlock()
	if !hasChanged {
		return false
	}
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		k.checkAll(o.id.Name) // its objects were written by another definition meanwhile
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
// tried again, too. The lock is held.
func (k *Keeper) markInSync(o *objectState) {
	k.queue.Forget(o)
	if o.problem != nil {
		k.queue.Add(o) // for endProblem
	}
	if !k.failing[o] {
		return
	}
	delete(k.failing, o)
	for other := range k.failing {
		if other.watch == o.watch {
			k.retry(other)
		}
	}
}

// retryAll repairs at once all objects that wait for another try: an object that others need is back. The lock is held.
func (k *Keeper) retryAll() {
	for _, o := range k.objects {
		if o.mayDiffer {
			k.retry(o)
		}
	}
}

func (k *Keeper) retry(o *objectState) {
	k.queue.Forget(o)
	k.queueRepair(o)
}

// isPrerequisite reports whether other objects need an object in order to exist.
func isPrerequisite(id kinds.ID) bool {
	return id.GroupKind() == kinds.Namespace || kinds.Extends(id.GroupKind())
}
