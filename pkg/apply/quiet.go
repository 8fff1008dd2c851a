package apply

import (
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/ready"
)

// assume takes in an object that was expected, and needs not be applied: how it stands, its
// watch will tell. Of one that was ready before, and that nobody has written since, that is
// known, until this run changes something: then it may matter to any other object.
func (f *follower) assume(m *payload.Manifest, wasReady bool) {
	f.do(func() {
		w := f.known[m]
		if w == nil {
			return
		}
		w.applied, w.isDone = true, false
		if wasReady && !f.isAwake {
			w.verdict = ready.Verdict{State: ready.Ready}
			f.quiet = append(f.quiet, w)
			return
		}
		f.watch(w)
	})
}

// wake begins to watch those that were ready before.
func (f *follower) wake() {
	f.do(func() {
		for _, w := range f.quiet {
			f.watch(w)
		}
		f.quiet, f.isAwake = nil, true
	})
}

// watch watches an object that has not been applied.
func (f *follower) watch(w *watched) {
	w.isUnseen = w.object == nil
	if w.object != nil { // another object's watch has shown it already
		f.meet(w, w.object)
	} else {
		f.judge(w)
	}
	f.stream(w, false)
}
