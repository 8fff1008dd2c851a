package ownership

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
)

// Disown removes the owner references to a ClusterVersion from a live object. The cluster-version operator sets one on
// each object that it creates; with it, garbage collection deletes the object when the ClusterVersion is deleted. An
// adoption removes it, too, from objects that are applied.
func Disown(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, live metav1.Object) error {
	var patch []operation
	for i, owner := range slices.Backward(live.GetOwnerReferences()) {
		if owner.Kind == "ClusterVersion" && strings.HasPrefix(owner.APIVersion, "config.openshift.io/") {
			path := fmt.Sprintf("/metadata/ownerReferences/%d", i)
			patch = append(patch, operation{"test", path + "/uid", string(owner.UID)},
				operation{Op: "remove", Path: path})
		}
	}
	if len(patch) == 0 {
		return nil
	}
	body, err := json.Marshal(patch)
	if err == nil {
		_, err = c.Patch(ctx, resource, live.GetNamespace(), live.GetName(), body)
	}
	if err != nil {
		return fmt.Errorf("remove the owner reference to the ClusterVersion from %s %s: %w", resource.Kind,
			live.GetName(),
			err)
	}
	return nil
}
