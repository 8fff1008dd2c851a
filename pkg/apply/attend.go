package apply

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
)

// assume takes in an object that was expected, and needs not be applied: how it stands, its
// watch will tell. Of one that was ready before, and that nobody has written since, that is
// known.
func (f *follower) assume(m *payload.Manifest, wasReady bool) {
	f.do(func() {
		w := f.known[m]
		if w == nil {
			return
		}
		w.applied, w.isDone, w.isAssumed, w.isQuiet = true, false, true, wasReady
		if wasReady {
			w.verdict = ready.Verdict{State: ready.Ready}
			return
		}
		w.isUnseen = w.object == nil
		f.judge(w)
		if mattersAlways(w) {
			f.begin(w)
		}
	})
}

// wake makes those matter that were ready before.
func (f *follower) wake() {
	f.do(func() { f.isAwake = true })
}

// isForeign says whether an object has no label of ours.
func (f *follower) isForeign(object *unstructured.Unstructured) bool {
	return object.GetLabels()[inventory.Label] != f.options.Release
}

// begin watches an object that somebody waits for, if it is not watched yet. One that was ready
// before, and that nobody has written since, is ready as long as this run has changed nothing:
// then it may matter to any other object, but to those that stay as they are.
func (f *follower) begin(w *watched) {
	switch {
	case w.stream != nil || w.isQuiet && (!f.isAwake || staysReady(w)):
	case w.isAssumed:
		f.watch(w)
	default:
		w.isLate = w.verdict.State != ready.Ready
		f.stream(w, w.object != nil && f.isForeign(w.object))
	}
}

// mattersAlways says whether somebody wants to know how an object stands though nobody waits for
// it: others build on what brings kinds, and that a Job has ended is noted.
func mattersAlways(w *watched) bool {
	kind := w.resource.GroupKind()
	return bringsKinds(kind) || kind == jobKind
}

// staysReady says whether an object that is ready stays so for as long as nobody writes it. All that
// is in a Namespace, or of a definition, waits for it: to watch those anew keeps thousands waiting.
func staysReady(w *watched) bool {
	kind := w.resource.GroupKind()
	return kind == kinds.Namespace || kind == kinds.CustomResourceDefinition
}

// watch watches an object that has not been applied.
func (f *follower) watch(w *watched) {
	w.isQuiet = false
	w.isUnseen = w.object == nil
	if w.object != nil { // another object's watch has shown it already
		f.meet(w, w.object)
	} else {
		f.judge(w)
	}
	f.stream(w, false)
}
