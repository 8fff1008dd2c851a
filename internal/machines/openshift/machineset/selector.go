package machineset

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// publishedSelectors has the resourceVersions at which the selectors of MachineSets were found in their status.
type publishedSelectors struct {
	mu       sync.Mutex
	versions map[types.NamespacedName]string
}

func (p *publishedSelectors) isSeen(set *machinev1beta1.MachineSet) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions[client.ObjectKeyFromObject(set)] == set.ResourceVersion
}

func (p *publishedSelectors) note(set client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.versions == nil {
		p.versions = map[types.NamespacedName]string{}
	}
	p.versions[client.ObjectKeyFromObject(set)] = set.GetResourceVersion()
}

func (p *publishedSelectors) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.versions, key)
}

// publishSelector writes the selector of a set into status.labelSelector, which its scale subresource uses, if it is missing
// there. The module's type has no such field, so neither has the cached set: the field is read from the API server, once for
// each version of the set.
func (r *MachineSetReconciler) publishSelector(ctx context.Context, set *machinev1beta1.MachineSet) error {
	if r.published.isSeen(set) {
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
	r.published.note(live)
	return nil
}
