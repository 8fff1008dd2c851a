package await

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
)

// A state is the source of the Tracker's knowledge of an object.
//
//	             NoteApplied    Assume          waited for         seen by a watch, or missing
//	expected     applied        trusted/unseen
//	applied      applied        trusted/unseen  unconfirmed        applied
//	unconfirmed  applied        trusted/unseen                     applied
//	trusted      applied        trusted/unseen  unseen/seen        trusted
//	unseen       applied        trusted/unseen                     seen
//	seen         applied        trusted/unseen                     seen
//
// The watch of an object begins with the first wait for it. Trusted objects are not watched before the run changes an
// object.
type state int

const (
	expected    state = iota // not applied yet
	applied                  // shown by the answer to the apply, or by a watch since
	unconfirmed              // not ready in the answer to the apply, and not shown by its watch since
	trusted                  // not applied, since it was ready when it was last written
	unseen                   // not applied, and not shown by a watch yet
	seen                     // not applied, and shown by a watch
)

// A trackedObject is an object whose readiness matters.
type trackedObject struct {
	Object
	standard ready.Standard
	state    state
	version  string                 // resourceVersion of the last observation of the object, or of its absence
	isDone   bool                   // a succeeded Job, which may be removed
	stalled  string                 // stalledSince before the apply
	calls    []types.NamespacedName // Services that the API server calls for it
	watch    *watch
	waits    []*GroupWait

	isSettled  bool        // the object was ready when it was first observed, or for settleTime
	hasBroken  bool        // the object was ready for less than settleTime
	readySince time.Time   // local time, while the object is not settled; zero if it is not ready
	settling   *time.Timer // runs for the rest of settleTime
}

// assume notes that an object needs no apply. The watch of another object may have shown it already.
func (o *trackedObject) assume() {
	o.state = seen
	if o.Live == nil {
		o.state = unseen
	}
}

// isAlwaysWatched reports whether an object is watched without a wait for it: custom resources need their
// definitions, and finished Jobs are noted.
func isAlwaysWatched(o *trackedObject) bool {
	kind := o.Resource.GroupKind()
	return kinds.Extends(kind) || kind == kinds.Job
}

// observeFirst observes an object for the first time since it was applied or assumed.
func (t *Tracker) observeFirst(o *trackedObject, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.state = seen
	}
	o.calls, o.stalled = nil, stalledSince(live)
	if o.standard == ready.Full {
		o.calls = kinds.CalledServices(live)
	}
	o.CallsServices = len(o.calls) > 0
	for _, called := range o.calls {
		t.watchService(called)
	}
	t.observe(o, live)
	if o.stalled != "" {
		o.extendDeadline(t, live)
	}
}

// observe notes the present state of an object, and judges it. An older state than the known one is ignored: watches
// may begin in the past, and two watches may show an object.
func (t *Tracker) observe(o *trackedObject, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.Since = time.Now() // the wait begins now
		t.observeFirst(o, live)
		return
	}
	since, isFirst := o.Since, o.state == unconfirmed
	if isFirst {
		o.state, o.Since = applied, time.Now() // an object that is ready now was not waited for
	}
	if !isOlder(live.GetResourceVersion(), o.version) {
		o.Live, o.version = live, live.GetResourceVersion()
	}
	t.judge(o)
	if isFirst && o.Verdict.State != ready.Ready {
		o.Since = since
	}
	if o.Resource.GroupKind() == kinds.CustomResourceDefinition && o.Live != nil && o.Verdict.State == ready.Ready {
		o.Live = withoutSpec(o.Live)
	}
}

// observeAbsence notes that an object does not exist.
func (o *trackedObject) observeAbsence(t *Tracker, version string) {
	if (o.Live != nil || o.state == unseen) && !isOlder(version, o.version) {
		if o.state == unseen {
			o.state = seen
		}
		o.Live, o.version = nil, version
		hasFailed := o.Verdict.State == ready.Failed // a removed Job that had failed does not run again
		t.judge(o)
		if !o.isDone && !hasFailed {
			o.emit(t, Missing)
		}
	}
}

// judge decides whether an object is ready, and ends the waits for it.
func (t *Tracker) judge(o *trackedObject) {
	if o.state == expected {
		return
	}
	before := o.Verdict
	o.Verdict = t.verdict(o)
	t.hasVerdict = t.hasVerdict || o.Verdict != before
	switch {
	case before.State == o.Verdict.State:
	case o.Verdict.State == ready.Ready:
		if o.Live != nil && kinds.Extends(o.Resource.GroupKind()) { // a finished Job may have been deleted
			o.emit(t, Extended)
		}
		t.events = append(t.events, Event{Type: Ready, Object: o.Object, Waited: time.Since(o.Since)})
	case before.State == ready.Ready:
		o.Since = time.Now()
	}
	o.countVerdict(t, before)
}

// countVerdict counts a changed verdict in the waits for an object, and ends those that are over.
func (o *trackedObject) countVerdict(t *Tracker, before ready.Verdict) {
	for _, w := range slices.Clone(o.waits) { // check may shorten the list
		stateBefore, stateNow := w.counts(t, o, before), w.counts(t, o, o.Verdict)
		if stateBefore == stateNow {
			continue
		}
		w.count(stateBefore, -1)
		w.count(stateNow, 1)
		w.check(t)
	}
}

// verdict returns the verdict on an object.
func (t *Tracker) verdict(o *trackedObject) ready.Verdict {
	switch {
	case o.isDone:
		return ready.Verdict{State: ready.Ready}
	case o.state == unseen:
		return ready.Verdict{State: ready.Waiting, Message: "its state is not known yet"}
	case o.Live == nil:
		return ready.Verdict{State: ready.Waiting, Message: "it was deleted after it was applied"}
	}
	verdict := ready.Check(o.Live, o.standard, ready.Related{
		Manifest: o.Manifest.Object(), Serving: t.servingServices(o.calls), Installing: t.options.Installing,
	})
	_, isMarked := o.Live.GetAnnotations()[ready.Annotation]
	if ready.HasSucceeded(o.Live) && (verdict.State == ready.Ready || !isMarked) {
		o.isDone = true
		o.emit(t, Finished)
		return ready.Verdict{State: ready.Ready}
	}
	if verdict.State == ready.Failed && o.stalled != "" && stalledSince(o.Live) == o.stalled {
		verdict.State = ready.Waiting
	}
	return o.settle(t, verdict)
}

// stalledSince returns when a rollout has exceeded its progress deadline; "" if it has not. A Deployment reports it
// until its controller sees progress, which may be long after the object was changed.
func stalledSince(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded" {
			since, _ := condition["lastTransitionTime"].(string)
			return since
		}
	}
	return ""
}

// extendDeadline ignores a ProgressDeadlineExceeded from before the apply for one more deadline: the rollout may
// proceed now.
func (o *trackedObject) extendDeadline(t *Tracker, object *unstructured.Unstructured) {
	const usual = 600 // the default of Kubernetes
	seconds, found, _ := unstructured.NestedInt64(object.Object, "spec", "progressDeadlineSeconds")
	if !found {
		seconds = usual
	}
	given := o.stalled
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		t.do(func() {
			if o.stalled == given && o.Live != nil && t.ctx.Err() == nil {
				o.stalled = ""
				t.judge(o)
			}
		})
	})
	t.timers = append(t.timers, timer)
}
