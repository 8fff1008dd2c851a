package openshift

import (
	"cmp"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// remembered is the state of one machine that need not survive a restart: backoffs, and the progress of its drain. One
// pass at a time uses it.
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

func (r *reconciler) remembered(m *machinev1beta1.Machine) *remembered {
	key := client.ObjectKeyFromObject(m)
	known, _ := r.memory.LoadOrStore(key, &remembered{uid: m.UID})
	if known.(*remembered).uid != m.UID {
		known = &remembered{uid: m.UID}
		r.memory.Store(key, known)
	}
	return known.(*remembered)
}

// bounded limits a wait to the longest one, if it is set.
func (r *reconciler) bounded(wait time.Duration) time.Duration {
	return min(wait, cmp.Or(r.options.LongestWait, wait))
}
