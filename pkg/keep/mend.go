package keep

import (
	"errors"
	"time"

	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/vigil"
)

// An object that could not be repaired is tried again after a pause, which gets longer.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = time.Minute
)

// work mends objects until there is nothing to do any more.
func (k *Keeper) work() {
	for {
		o, isOver := k.queue.Get()
		if isOver {
			return
		}
		if k.keep(o) {
			k.mend(o)
		}
		k.queue.Done(o)
	}
}

// mend mends an object, if it is still to be.
func (k *Keeper) mend(o *kept) {
	k.mu.Lock()
	seen, mark, isSuspect, audit, mayBeDone := o.seen, o.mark, o.isSuspect, o.audit, o.mayBeDone
	isLeaving := o.isLeaving && (audit == nil || !o.view.isBlind(o.id.Namespace)) // else nobody tells when it is gone
	isDue := (isSuspect || audit != nil) && !isLeaving && !k.isHopeless(o)
	if pause := o.quarrel.pause(time.Now()); isDue && audit == nil && pause > 0 {
		isDue = false // it was queued before the quarrel was noticed
		k.queue.AddAfter(o, pause)
	}
	o.audit, o.mayBeDone = nil, false
	k.mu.Unlock()
	if mayBeDone && k.ctx.Err() == nil {
		k.noteDone(o)
	}
	found := wasFine
	if isDue && k.ctx.Err() == nil {
		repaired, err := k.repairer.Repair(o.manifest, seen)
		switch {
		case err != nil:
			found = k.failed(o, repaired, err)
		case k.succeeded(o, mark, repaired) && !isSuspect:
			found = wasMissed
		}
	}
	if audit != nil {
		audit <- found
	}
}

// noteDone notes that a Job has run to its end, if it has.
func (k *Keeper) noteDone(o *kept) {
	if err := k.repairer.NoteFinished(o.manifest); err == nil {
		k.queue.Forget(o)
		return
	}
	k.mu.Lock()
	o.mayBeDone = true
	k.mu.Unlock()
	k.queue.AddRateLimited(o)
}

// isHopeless says whether an object can't be as long as another one is not there. It is repaired
// when that one is. The lock is held.
func (k *Keeper) isHopeless(o *kept) bool {
	for _, need := range o.needs() {
		if k.objects[need].isMissing() {
			return true
		}
	}
	return false
}

// failed notes that an object could not be repaired as it was, and tells of it if it goes on.
func (k *Keeper) failed(o *kept, found object.Repaired, err error) finding {
	event := Event{Type: Failing, Object: &o.id, File: o.manifest.Path, Message: printable.Line(err.Error())}
	var failure *object.Failure
	if errors.As(err, &failure) {
		event.Message, event.Reason = printable.Line(failure.Err.Error()), failure.Reason
	}
	k.mu.Lock()
	wasMissing := o.isMissing()
	k.troubled[o], o.isSuspect, o.isThere = true, true, !wasMissing
	if found.IsLooked {
		o.isThere = found.Before.UID != "" && !found.Before.Terminating
	}
	if wasMissing && !o.isMissing() && isFoundation(o.id) {
		k.wakeAll()
	}
	k.queue.AddRateLimited(o)
	isNew := !o.isTold && k.queue.NumRequeues(o) >= tellAfter
	o.isTold = o.isTold || isNew
	k.mu.Unlock()
	if isNew {
		k.tell(event)
	}
	return wasBroken
}

// tellAfter is how often it must fail to be worth telling.
const tellAfter = 4

// succeeded takes in what came of an object, and says whether it was not as it should.
func (k *Keeper) succeeded(o *kept, mark int, repaired object.Repaired) (hasChanged bool) {
	hasChanged = repaired.Action != object.Unchanged && repaired.Action != object.Kept
	k.mu.Lock()
	wasMissing := o.isMissing()
	if o.mark == mark {
		o.isLeaving = repaired.Now.Terminating
	}
	if version := repaired.Now.ResourceVersion; !vigil.IsOlder(version, o.version) {
		o.version = version
	}
	if o.mark == mark || o.seen != nil && !vigil.IsOlder(o.version, o.seen.ResourceVersion) {
		o.isSuspect, o.seen = false, nil
	}
	pause := o.quarrel.note(time.Now(), hasChanged)
	k.settle(o)
	if o.isSuspect { // it was made otherwise meanwhile
		k.mendSoon(o)
	}
	if isFoundation(o.id) && (wasMissing || hasChanged) {
		k.wakeAll()
	}
	k.mu.Unlock()
	if !hasChanged {
		return false
	}
	if o.id.GroupKind() == kinds.CustomResourceDefinition {
		k.doubtAll(o.id.Name) // what was made of them meanwhile, was by another definition
	}
	k.tell(Event{Type: Repaired, Object: &o.id, File: o.manifest.Path, Action: repaired.Action, Lost: repaired.Lost, Message: object.LossesInWords(repaired.Lost)})
	if pause > 0 {
		k.tellQuarrel(o, repaired.Now.UID, repaired.Lost, pause)
	}
	return true
}

// settle notes that an object is as it should. If it was not to be repaired before, others of its
// kind may do now, too. The lock is held.
func (k *Keeper) settle(o *kept) {
	k.queue.Forget(o)
	o.isTold = false
	if !k.troubled[o] {
		return
	}
	delete(k.troubled, o)
	for other := range k.troubled {
		if other.view == o.view {
			k.tryAgain(other)
		}
	}
}

// wakeAll begins at once with all that waits: an object is back without which others can't be.
// The lock is held.
func (k *Keeper) wakeAll() {
	for _, o := range k.objects {
		if o.isSuspect {
			k.tryAgain(o)
		}
	}
}

func (k *Keeper) tryAgain(o *kept) {
	k.queue.Forget(o)
	k.mendSoon(o)
}

// isFoundation says whether others can't be without an object.
func isFoundation(id kinds.ID) bool {
	kind := id.GroupKind()
	return kind == kinds.Namespace || kind == kinds.CustomResourceDefinition || kind == kinds.APIService
}
