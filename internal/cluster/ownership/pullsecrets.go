package ownership

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
)

// shared is the one list that a controller adds to, and that has one owner as a whole all
// the same: OpenShift's adds what a ServiceAccount needs for its own registry.
const shared = "imagePullSecrets"

// IsShared says whether a field is a list that others add to.
func IsShared(object *unstructured.Unstructured, lost Conflict) bool {
	return lost.Field == shared && object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "ServiceAccount"}
}

// Unshare takes the list out of a draft, and returns what of it is not there: to set it would
// throw out what others have added.
func Unshare(ctx context.Context, c *cluster.Cluster, in cluster.Resource, draft *unstructured.Unstructured) (missing []any, err error) {
	live, err := c.In(in, draft.GetNamespace()).Get(ctx, draft.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	there, _, _ := unstructured.NestedSlice(live.Object, shared)
	wanted, _, _ := unstructured.NestedSlice(draft.Object, shared)
	delete(draft.Object, shared)
	return slices.DeleteFunc(wanted, func(item any) bool {
		return slices.ContainsFunc(there, func(other any) bool { return reflect.DeepEqual(item, other) })
	}), nil
}

// Share adds what is missing to the list that is there. It is added by an update, and not by
// an apply: that would be the owner of all of it, and would take away the rest next time.
func Share(ctx context.Context, c *cluster.Cluster, in cluster.Resource, object metav1.Object, missing []any) error {
	var patch []operation
	for _, item := range missing {
		patch = append(patch, operation{"add", "/" + shared + "/-", item})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("add to the %s of %s %s: %w", shared, in.Kind, object.GetName(), err)
	}
	_, err = c.Patch(ctx, in, object.GetNamespace(), object.GetName(), body)
	return err
}

// Shared adds what is missing to the answer to a dry run, as Share would on the cluster.
func Shared(would *unstructured.Unstructured, missing []any) {
	there, _, _ := unstructured.NestedSlice(would.Object, shared)
	would.Object[shared] = append(there, missing...)
}
