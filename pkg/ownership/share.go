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

	"github.com/runlevel/runlevel/pkg/cluster"
)

// shared is the one list that a controller adds to, and that has one owner as a whole all
// the same: OpenShift's adds what a ServiceAccount needs for its own registry.
const shared = "imagePullSecrets"

// IsShared says whether a field is a list that others add to.
func IsShared(object *unstructured.Unstructured, lost Loss) bool {
	return lost.Field == shared && object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "ServiceAccount"}
}

// Share adds what is missing in the list that is there, and takes the list out of a draft:
// to set it would throw out what others have added. It is added by an update, and not by an
// apply: that would be the owner of all of it, and would take away the rest next time.
func Share(ctx context.Context, c *cluster.Cluster, in cluster.Resource, draft *unstructured.Unstructured) error {
	live, err := c.In(in, draft.GetNamespace()).Get(ctx, draft.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	there, _, _ := unstructured.NestedSlice(live.Object, shared)
	wanted, _, _ := unstructured.NestedSlice(draft.Object, shared)
	var patch []operation
	for _, item := range wanted {
		if !slices.ContainsFunc(there, func(other any) bool { return reflect.DeepEqual(item, other) }) {
			patch = append(patch, operation{"add", "/" + shared + "/-", item})
		}
	}
	delete(draft.Object, shared)
	if len(patch) == 0 {
		return nil
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("add to the %s of %s %s: %w", shared, in.Kind, draft.GetName(), err)
	}
	return c.Amend(ctx, in, draft.GetNamespace(), draft.GetName(), body)
}
