package openshift

import (
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A deletionMemory has the state that need not survive a restart: backoffs, and the progress of drains.
type deletionMemory struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*remembered
}

// remembered is the state of one machine. One pass at a time uses it.
type remembered struct {
	uid   types.UID
	drain drainProgress
	// drainUntil is when pods are evicted again: an earlier pass must not evict them.
	drainUntil time.Time
	// cordonedPods are the pods that the first listing after the cordon had; nil if there was none.
	cordonedPods sets.Set[types.UID]
	problem      string // of deleting the infrastructure
	askUntil     time.Time
}

func (d *deletionMemory) of(m *machinev1beta1.Machine) *remembered {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	if d.known[key] == nil || d.known[key].uid != m.UID {
		if d.known == nil {
			d.known = map[types.NamespacedName]*remembered{}
		}
		d.known[key] = &remembered{uid: m.UID}
	}
	return d.known[key]
}

func (d *deletionMemory) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, key)
}

// bounded returns a wait that is not longer than the longest one.
func (r *MachineReconciler) bounded(wait time.Duration) time.Duration {
	if r.options.LongestWait > 0 {
		return min(wait, r.options.LongestWait)
	}
	return wait
}
