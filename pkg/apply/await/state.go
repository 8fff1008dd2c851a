package await

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A state is where the knowledge of an object comes from.
//
//	             Applied        Assume          waited for         seen by a watch, or missing
//	expected     applied        trusted/unseen
//	applied      applied        trusted/unseen  unconfirmed        applied
//	unconfirmed  applied        trusted/unseen                     applied
//	trusted      applied        trusted/unseen  unseen/seen        trusted
//	unseen       applied        trusted/unseen                     seen
//	seen         applied        trusted/unseen                     seen
//
// An object is waited for when its watch begins. Trusted objects are not watched before something has changed.
type state int

const (
	expected    state = iota // it is not applied yet
	applied                  // the answer to the apply, or a watch since, shows it
	unconfirmed              // its watch began after it was applied, when it was not ready, and has not shown it
	trusted                  // it needed not be applied, and was ready when it was written last
	unseen                   // it needed not be applied, and was not shown by a watch
	seen                     // it needed not be applied, and a watch has shown it
)

// A tracked object is one whose readiness matters.
type tracked struct {
	manifest *payload.Manifest
	standard ready.Standard
	resource cluster.Resource
	state    state
	live     *unstructured.Unstructured // as it was last seen; nil when it was not
	version  string                     // of the resource, when it was last seen, or was missing
	verdict  ready.Verdict
	since    time.Time              // when it was first not ready, by this machine's clock
	isDone   bool                   // a Job that has succeeded: that it is removed then changes nothing
	stalled  string                 // since when its rollout was given up, before it was applied
	calls    []types.NamespacedName // Services
	watch    *watch
	waiters  []*waiter

	isSettled  bool        // it was ready when it was first seen, or has been for long enough: see settle
	hasBroken  bool        // it was ready for less than that
	readySince time.Time   // by this machine's clock, while it is not settled; zero if it is not ready
	settling   *time.Timer // ends when it has been ready for long enough
}

func (o *tracked) export() Object {
	return Object{Manifest: o.manifest, Resource: o.resource, Live: o.live, Verdict: o.verdict, Since: o.since, CallsServices: len(o.calls) > 0}
}

// assume makes an object one that needs not be applied. The watch of another object may have shown it.
func (o *tracked) assume() {
	o.state = seen
	if o.live == nil {
		o.state = unseen
	}
}

// startWatching watches an object that is waited for, if it is not watched yet. A trusted one is ready as long as
// nothing has changed: then that may matter to any other object, but to those that stay as they are.
func (t *Tracker) startWatching(o *tracked) {
	switch {
	case o.watch != nil || o.state == trusted && (!t.hasChanges || staysReady(o)):
	case o.state == applied || o.state == unconfirmed:
		if o.verdict.State != ready.Ready {
			o.state, o.since = unconfirmed, time.Now() // it was not waited for until now
		}
		t.watchObject(o, o.live != nil && t.isUnlabelled(o.live))
	default:
		if o.assume(); o.state == seen {
			t.observeFirst(o, o.live)
		} else {
			t.judge(o)
		}
		t.watchObject(o, false)
	}
}

// isAlwaysWatched reports whether an object is watched though it is not waited for: others build on what
// brings kinds, and that a Job has ended is noted.
func isAlwaysWatched(o *tracked) bool {
	kind := o.resource.GroupKind()
	return kinds.Extends(kind) || kind == kinds.Job
}

// staysReady reports whether an object that is ready stays so for as long as it is not written. All that is in
// a Namespace, or of a definition, waits for it: to watch those again would keep thousands waiting.
func staysReady(o *tracked) bool {
	kind := o.resource.GroupKind()
	return kind == kinds.Namespace || kind == kinds.CustomResourceDefinition
}

// observeFirst takes in an object that is seen for the first time since it was applied, or assumed.
func (t *Tracker) observeFirst(o *tracked, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.state = seen
	}
	o.calls, o.stalled = nil, stalledSince(live)
	if o.standard == ready.Full {
		o.calls = kinds.CalledServices(live)
	}
	for _, called := range o.calls {
		t.watchService(called)
	}
	t.observe(o, live)
	if o.stalled != "" {
		t.extendDeadline(o, live)
	}
}

// observe takes in an object as it is now. What is older than what is known already is left aside: watches may
// begin with the past, and there may be two.
func (t *Tracker) observe(o *tracked, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.since = time.Now() // it was not waited for until now
		t.observeFirst(o, live)
		return
	}
	since, isFirst := o.since, o.state == unconfirmed
	if isFirst {
		o.state, o.since = applied, time.Now() // if it is ready, it was not waited for
	}
	if !isOlder(live.GetResourceVersion(), o.version) {
		o.live, o.version = live, live.GetResourceVersion()
	}
	t.judge(o)
	if isFirst && o.verdict.State != ready.Ready {
		o.since = since
	}
	if o.resource.GroupKind() == kinds.CustomResourceDefinition && o.live != nil && o.verdict.State == ready.Ready {
		o.live = withoutSpec(o.live)
	}
}

// observeAbsence takes in that an object is not there.
func (t *Tracker) observeAbsence(o *tracked, version string) {
	if (o.live != nil || o.state == unseen) && !isOlder(version, o.version) {
		if o.state == unseen {
			o.state = seen
		}
		o.live, o.version = nil, version
		hasFailed := o.verdict.State == ready.Failed // a Job that has failed is not run again when it is removed
		t.judge(o)
		if !o.isDone && !hasFailed {
			id := o.manifest.ID()
			t.calls = append(t.calls, func() { t.handler.Missing(id) })
		}
	}
}

// judge asks whether an object is ready, and calls those who wait.
func (t *Tracker) judge(o *tracked) {
	if o.state == expected {
		return
	}
	before := o.verdict
	o.verdict = t.verdict(o)
	switch {
	case before.State == o.verdict.State:
	case o.verdict.State == ready.Ready:
		t.becameReady(o)
	case before.State == ready.Ready:
		o.since = time.Now()
	}
	o.callWaiters(t, before)
}

// callWaiters calls those who wait for an object if its verdict, which was another one before, ends that.
func (o *tracked) callWaiters(t *Tracker, before ready.Verdict) {
	for _, w := range append([]*waiter(nil), o.waiters...) { // which check may shorten
		was, is := t.counts(o, before, w), t.counts(o, o.verdict, w)
		if was == is {
			continue
		}
		w.count(was, -1)
		w.count(is, 1)
		w.check(t)
	}
}

// verdict returns how an object stands.
func (t *Tracker) verdict(o *tracked) ready.Verdict {
	switch {
	case o.isDone:
		return ready.Verdict{State: ready.Ready}
	case o.state == unseen:
		return ready.Verdict{State: ready.Waiting, Message: "nothing is known yet of how it stands"}
	case o.live == nil:
		return ready.Verdict{State: ready.Waiting, Message: "it was deleted after it was applied"}
	}
	verdict := ready.Check(o.live, o.standard, ready.Related{
		Manifest: o.manifest.Object(), Serving: t.serving(o.calls), Installing: t.options.Installing,
	})
	_, isMarked := o.live.GetAnnotations()[ready.Annotation]
	if ready.HasSucceeded(o.live) && (verdict.State == ready.Ready || !isMarked) {
		o.isDone = true
		job, uid := o.manifest, o.live.GetUID()
		t.calls = append(t.calls, func() { t.handler.Finished(job, uid) })
		return ready.Verdict{State: ready.Ready}
	}
	if verdict.State == ready.Failed && o.stalled != "" && stalledSince(o.live) == o.stalled {
		verdict.State = ready.Waiting
	}
	return o.settle(t, verdict)
}

// becameReady calls the handler for an object that is ready.
func (t *Tracker) becameReady(o *tracked) {
	m, waited := o.manifest, time.Since(o.since)
	t.calls = append(t.calls, func() { t.handler.Ready(m, waited) })
	if o.live != nil && kinds.Extends(o.resource.GroupKind()) { // a Job that is done may not be there
		t.handler.Extended(o.live)
	}
}

// stalledSince returns since when a rollout has exceeded its progress deadline, if it has. A Deployment reports it until
// its controller has seen some progress, which may be long after the object was changed.
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

// extendDeadline ignores a ProgressDeadlineExceeded that is older than this run, until the deadline has passed once
// more: what the rollout lacked may have come since.
func (t *Tracker) extendDeadline(o *tracked, object *unstructured.Unstructured) {
	const usual = 600 // the default of Kubernetes
	seconds, found, _ := unstructured.NestedInt64(object.Object, "spec", "progressDeadlineSeconds")
	if !found {
		seconds = usual
	}
	given := o.stalled
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		t.do(func() {
			if o.stalled == given && o.live != nil && t.ctx.Err() == nil {
				o.stalled = ""
				t.judge(o)
			}
		})
	})
	t.timers = append(t.timers, timer)
}
