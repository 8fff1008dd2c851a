package machineset

import (
	"context"
	"encoding/json"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publishSelector writes the selector of a set into status.labelSelector, which its scale subresource uses, if it is missing
// there. The module's type has no such field, so neither has the cached set: the field is read from the API server, once for
// each version of the set.
func (r *MachineSetReconciler) publishSelector(ctx context.Context, set *machinev1beta1.MachineSet) error {
	if seen, _ := r.published.Load(client.ObjectKeyFromObject(set)); seen == set.ResourceVersion {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return fmt.Errorf("read the selector of MachineSet %s: %w", set.Name, err)
	}
	sets := unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(machinev1beta1.SchemeGroupVersion.WithKind("MachineSetList"))
	named := client.MatchingFields{metav1.ObjectNameField: set.Name}
	if err := r.live.List(ctx, &sets, client.InNamespace(set.Namespace), named); err != nil {
		return fmt.Errorf("read the status of MachineSet %s: %w", set.Name, err)
	}
	if len(sets.Items) == 0 {
		return nil // it was deleted meanwhile
	}
	live := &sets.Items[0]
	if written, _, _ := unstructured.NestedString(live.Object, "status", "labelSelector"); written != selector.String() {
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"labelSelector": selector.String()}})
		if err != nil {
			return err
		}
		if err := r.cached.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return client.IgnoreNotFound(fmt.Errorf("write the selector of MachineSet %s: %w", set.Name, err))
		}
	}
	r.published.Store(client.ObjectKeyFromObject(set), live.GetResourceVersion())
	return nil
}
