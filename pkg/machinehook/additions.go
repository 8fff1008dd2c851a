package machinehook

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A hook that another writer removes is put back after firstPause, and then after twice as long each time, up to
// longestPause. One that has stood for calm is put back at once again.
const firstPause, longestPause, calm = time.Second, 5 * time.Minute, 20 * time.Minute

// additions remembers how often the hook was put onto each machine. What is forgotten with the process is how long to
// pause.
type additions struct {
	mu        sync.Mutex
	byMachine map[types.NamespacedName]*addition
}

// An addition is the last time that the hook was put onto a machine.
type addition struct {
	uid    types.UID
	at     time.Time
	pause  time.Duration // until it may be put there again
	isTold bool
}

// pruned returns the last time that the hook was put onto a machine which lacks it, if there is one, and whether that is
// the first time since that it is asked for.
func (a *additions) pruned(m client.Object) (last addition, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byMachine[client.ObjectKeyFromObject(m)]
	if known == nil || known.uid != m.GetUID() {
		return addition{}, false
	}
	last, known.isTold = *known, true
	return last, !last.isTold
}

// note notes that the hook was put onto a machine.
func (a *additions) note(m client.Object, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	next := &addition{uid: m.GetUID(), at: now, pause: firstPause}
	if last := a.byMachine[key]; last != nil && last.uid == next.uid && now.Sub(last.at) < calm {
		next.pause = min(2*last.pause, longestPause)
	}
	if a.byMachine == nil {
		a.byMachine = map[types.NamespacedName]*addition{}
	}
	a.byMachine[key] = next
}

func (a *additions) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byMachine, key)
}
