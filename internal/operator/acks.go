package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/pkg/precondition"
)

// onlyGates selects the ConfigMaps that the operator watches: those of admin gates and of their
// acknowledgements. Their namespaces need not exist.
func onlyGates() cache.ByObject {
	only := cache.ByObject{Namespaces: map[string]cache.Config{}}
	for _, namespacedName := range []types.NamespacedName{precondition.AdminGates, precondition.AdminAcks} {
		only.Namespaces[namespacedName.Namespace] = cache.Config{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", namespacedName.Name),
		}
	}
	return only
}

// pendingAcks returns the admin gates of a version that no administrator has acknowledged. Before a version is
// complete, there is none to update from.
func (r *reconciler) pendingAcks(ctx context.Context, version string) ([]precondition.AdminGate, error) {
	if version == "" {
		return nil, nil
	}
	var gates, acks corev1.ConfigMap
	for name, found := range map[types.NamespacedName]*corev1.ConfigMap{precondition.AdminGates: &gates,
		precondition.AdminAcks: &acks} {
		if err := r.client.Get(ctx, name, found); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read ConfigMap %s: %w", name, err)
		}
	}
	return precondition.PendingAcks(gates.Data, acks.Data, version), nil
}
