package machinehook

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A hook that another writer removes is added again after firstPause, and then after twice as long each time, up to
// longestPause. A hook that was kept for calm is added again at once.
const firstPause, longestPause, calm = time.Second, 5 * time.Minute, 20 * time.Minute

// additions records when the hook was added to each machine. A restart of the process resets the
// pauses.
type additions struct {
	mu        sync.Mutex
	byMachine map[types.NamespacedName]*addition
}

// An addition is the last time that the hook was added to a machine.
type addition struct {
	uid        types.UID
	at         time.Time
	pause      time.Duration // until it may be added again
	isReported bool
}

// pruned returns the last addition of the hook to a machine that lacks it, if there is one, and whether this is the
// first call since then.
func (a *additions) pruned(m client.Object) (last addition, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byMachine[client.ObjectKeyFromObject(m)]
	if known == nil || known.uid != m.GetUID() {
		return addition{}, false
	}
	last, known.isReported = *known, true
	return last, !last.isReported
}

// record records that the hook was added to a machine.
func (a *additions) record(m client.Object, now time.Time) {
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
