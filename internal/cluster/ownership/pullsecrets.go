package ownership

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// shared is the one atomic list that another controller adds to: OpenShift's adds the
// pull secret of its own registry to each ServiceAccount.
const shared = "imagePullSecrets"

// IsShared reports whether a field is a list that others add to.
func IsShared(object *unstructured.Unstructured, lost Conflict) bool {
	return lost.Field == shared && object.GroupVersionKind().GroupKind() == kinds.ServiceAccount
}

// Unshare removes the list from a draft, and returns its items that the live object lacks: to apply the list would
// remove the items of others.
func Unshare(ctx context.Context, c *cluster.Cluster, resource cluster.Resource,
	draft *unstructured.Unstructured) (missing []any, err error) {
	live, err := c.In(resource, draft.GetNamespace()).Get(ctx, draft.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	existing, _, _ := unstructured.NestedSlice(live.Object, shared)
	wanted, _, _ := unstructured.NestedSlice(draft.Object, shared)
	delete(draft.Object, shared)
	return slices.DeleteFunc(wanted, func(item any) bool {
		return slices.ContainsFunc(existing, func(other any) bool { return reflect.DeepEqual(item, other) })
	}), nil
}

// Share adds missing items to the live list. It does so by an update, and not by
// an apply, which would own the whole list, and remove the items of others next time.
func Share(ctx context.Context, c *cluster.Cluster, resource cluster.Resource, object metav1.Object,
	missing []any) error {
	var patch []operation
	for _, item := range missing {
		patch = append(patch, operation{"add", "/" + shared + "/-", item})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("add to the %s of %s %s: %w", shared, resource.Kind, object.GetName(), err)
	}
	_, err = c.Patch(ctx, resource, object.GetNamespace(), object.GetName(), body)
	return err
}

// DryRunShare adds missing items to the result of a dry run, as Share would on the cluster.
func DryRunShare(result *unstructured.Unstructured, missing []any) {
	existing, _, _ := unstructured.NestedSlice(result.Object, shared)
	result.Object[shared] = append(existing, missing...)
}
