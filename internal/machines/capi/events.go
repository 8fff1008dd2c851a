package capi

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lastEvents are the last events of each machine by their reasons: an event that has not changed is not recorded again.
type lastEvents struct {
	mu   sync.Mutex
	last map[types.NamespacedName]map[string]string
}

// isNew reports whether an event differs from the last one of its reason, and remembers it.
func (t *lastEvents) isNew(machine types.NamespacedName, reason, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[types.NamespacedName]map[string]string{}
	}
	if t.last[machine] == nil {
		t.last[machine] = map[string]string{}
	}
	last, ok := t.last[machine][reason]
	t.last[machine][reason] = note
	return !ok || last != note
}

func (t *lastEvents) forget(machine types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, machine)
}

// recordEvent records an event about a Machine.
func (r *ClusterAPIReconciler) recordEvent(m *clusterv1.Machine, kind, reason, note string) {
	if r.lastEvents.isNew(client.ObjectKeyFromObject(m), reason, note) {
		r.events.Eventf(m, nil, kind, reason, "Reconcile", "%s", note)
	}
}
