package await

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
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
	manifest  *payload.Manifest
	resource  cluster.Resource
	state     state
	live      *unstructured.Unstructured // as it was last seen, as far as it is needed; nil when it was not
	isTrimmed bool                       // only its metadata is left, and the verdict stays as it is until it is seen again
	version   string                     // of the resource, when it was last seen, or was missing
	verdict   ready.Verdict
	since     time.Time              // when it was first not ready, by this machine's clock
	isDone    bool                   // a Job that has succeeded: that it is removed then changes nothing
	stalled   string                 // since when its rollout was given up, before it was applied
	calls     []types.NamespacedName // Services
	watch     *watch
	waiters   []*waiter
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

// begin watches an object that is waited for, if it is not watched yet. A trusted one is ready as long as
// nothing has changed: then that may matter to any other object, but to those that stay as they are.
func (t *Tracker) begin(o *tracked) {
	switch {
	case o.watch != nil || o.state == trusted && (!t.hasChanges || staysReady(o)):
	case o.state == applied || o.state == unconfirmed:
		if o.verdict.State != ready.Ready {
			o.state, o.since = unconfirmed, time.Now() // it was not waited for until now
		}
		t.watchObject(o, o.live != nil && t.isUnlabelled(o.live))
	default:
		if o.assume(); o.state == seen {
			t.meet(o, o.live)
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
// a Namespace, or of a definition, waits for it: to watch those anew keeps thousands waiting.
func staysReady(o *tracked) bool {
	kind := o.resource.GroupKind()
	return kind == kinds.Namespace || kind == kinds.CustomResourceDefinition
}

// meet takes in an object that is seen for the first time since it was applied, or assumed.
func (t *Tracker) meet(o *tracked, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.state = seen
	}
	o.calls, o.stalled = nil, stalledSince(live)
	if t.options.Standard == ready.Full {
		o.calls = kinds.CalledServices(live)
	}
	for _, called := range o.calls {
		t.watchService(called)
	}
	t.see(o, live)
	if o.stalled != "" {
		t.extendDeadline(o, live)
	}
}

// see takes in an object as it is now. What is older than what is known already is left aside: watches may
// begin with the past, and there may be two.
func (t *Tracker) see(o *tracked, live *unstructured.Unstructured) {
	if o.state == unseen {
		o.since = time.Now() // it was not waited for until now
		t.meet(o, live)
		return
	}
	since, isFirst := o.since, o.state == unconfirmed
	if isFirst {
		o.state, o.since = applied, time.Now() // if it is ready, nobody had to wait for it
	}
	if !isOlder(live.GetResourceVersion(), o.version) {
		o.live, o.version, o.isTrimmed = live, live.GetResourceVersion(), false
	}
	t.judge(o)
	if isFirst && o.verdict.State != ready.Ready {
		o.since = since
	}
	t.trim(o)
}

// miss takes in that an object is not there.
func (t *Tracker) miss(o *tracked, version string) {
	if (o.live != nil || o.state == unseen) && !isOlder(version, o.version) {
		if o.state == unseen {
			o.state = seen
		}
		o.live, o.version, o.isTrimmed = nil, version, false
		t.judge(o)
	}
}

// judge asks whether an object is ready, and calls those who wait.
func (t *Tracker) judge(o *tracked) {
	if o.state == expected || o.isTrimmed {
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
	was, is := t.counts(before), t.counts(o.verdict)
	if was == is {
		return
	}
	for _, w := range append([]*waiter(nil), o.waiters...) { // which settle may shorten
		w.count(was, -1)
		w.count(is, 1)
		t.settle(w)
	}
}

// verdict is what there is to say of an object.
func (t *Tracker) verdict(o *tracked) ready.Verdict {
	switch {
	case o.isDone:
		return ready.Verdict{State: ready.Ready}
	case o.state == unseen:
		return ready.Verdict{State: ready.Waiting, Message: "nothing is known yet of how it stands"}
	case o.live == nil:
		return ready.Verdict{State: ready.Waiting, Message: "somebody has deleted it after it was applied"}
	}
	verdict := ready.Check(o.live, t.options.Standard, ready.Around{
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
	return verdict
}

// becameReady calls the handler for an object that is ready.
func (t *Tracker) becameReady(o *tracked) {
	m, waited := o.manifest, time.Since(o.since)
	t.calls = append(t.calls, func() { t.handler.Ready(m, waited) })
	if o.live != nil && kinds.Extends(o.resource.GroupKind()) { // a Job that is done may not be there
		t.handler.Extended(o.live)
	}
}
