package openshift

import (
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A deletionMemory has the state that need not survive a restart: backoffs, drained pods, and recorded events.
type deletionMemory struct {
	mu    sync.Mutex
	known map[types.NamespacedName]*remembered
}

// remembered is the state of one machine. One pass at a time uses it.
type remembered struct {
	uid   types.UID
	drain deletion.Drain
	// drainUntil is when pods are evicted again: an earlier pass must not evict them.
	drainUntil time.Time
	// cordonedPods are the pods that the first listing after the cordon had; nil if there was none.
	cordonedPods sets.Set[types.UID]
	problem      string // of deleting the infrastructure
	askUntil     time.Time
	reported     map[string]string // last note and cause, by the reason of an event
}

func (d *deletionMemory) of(m *machinev1beta1.Machine) *remembered {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := client.ObjectKeyFromObject(m)
	if d.known[key] == nil || d.known[key].uid != m.UID {
		if d.known == nil {
			d.known = map[types.NamespacedName]*remembered{}
		}
		d.known[key] = &remembered{uid: m.UID, reported: map[string]string{}}
	}
	return d.known[key]
}

func (d *deletionMemory) forget(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, key)
}

// maxNote is the longest note of an event that the API server accepts.
const maxNote = 1024

// A machineEvent is an event. It is recorded again when its note or its cause changes.
type machineEvent struct{ kind, reason, action, note, cause string }

// recordEvent records an event about a Machine, once for each change.
func (r *MachineReconciler) recordEvent(m *machinev1beta1.Machine, t machineEvent) {
	reported := r.memory.of(m).reported
	if last, ok := reported[t.reason]; ok && last == t.note+t.cause {
		return
	}
	reported[t.reason] = t.note + t.cause
	r.events.Eventf(m, nil, t.kind, t.reason, t.action, "%s", printable.Truncate(t.note, maxNote))
}

// bounded returns a wait that is not longer than the longest one.
func (r *MachineReconciler) bounded(wait time.Duration) time.Duration {
	if r.options.LongestWait > 0 {
		return min(wait, r.options.LongestWait)
	}
	return wait
}
