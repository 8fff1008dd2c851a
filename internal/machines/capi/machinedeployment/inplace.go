package machinedeployment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/capi/machinedeployment/rolloutplan"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/runtimehook"
)

// decideInPlace decides for each old set whether its machines can be updated in place. After an error no set is
// changed, since replaced machines could not be restored. In a cluster without extensions all machines are replaced,
// and no reason is reported.
func (r *Reconciler) decideInPlace(ctx context.Context, s *snapshot) error {
	s.inPlace = map[types.UID]rolloutplan.InPlaceDecision{}
	movable := s.movable()
	if len(movable) == 0 {
		return nil
	}
	var extensions runtimev1.ExtensionConfigList
	if err := r.hooks.Registry.Configs.List(ctx, &extensions); err != nil || len(extensions.Items) == 0 {
		return err
	}
	for _, set := range movable {
		reason, err := rolloutrules.ReplacementReason(s.deployment, set, s.time), error(nil)
		if reason == "" {
			reason, err = r.ask(ctx, s, set)
		}
		if err != nil {
			return fmt.Errorf("decide whether machines of MachineSet %s can be updated in place: %w", set.Name, err)
		}
		s.inPlace[set.UID] = rolloutplan.InPlaceDecision{IsPossible: reason == "", Reason: reason}
	}
	return nil
}

// movable returns the old sets with machines that could be moved to the new set. While a rollout is paused, and with
// OnDelete, no machine is updated in place.
func (s *snapshot) movable() []*clusterv1.MachineSet {
	if spec := s.spec(); spec.IsOnDelete || spec.IsPaused {
		return nil
	}
	return slices.DeleteFunc(s.old(s.current()), func(set *clusterv1.MachineSet) bool {
		return set.DeletionTimestamp != nil || len(s.machines[set.UID]) == 0
	})
}

// ask calls the extension, and returns why the machines of an old set are replaced; empty if they can be updated in
// place. A template that was deleted can't be compared.
func (r *Reconciler) ask(ctx context.Context, s *snapshot, set *clusterv1.MachineSet) (string, error) {
	current, err := r.objectsOf(ctx, set)
	if apierrors.IsNotFound(err) {
		return "a template of MachineSet " + set.Name + " does not exist", nil
	}
	if err != nil {
		return "", err
	}
	desired, err := r.objectsOf(ctx, s.wantedSet())
	if err != nil {
		return "", err
	}
	decision, err := r.hooks.CanUpdateMachineSet(ctx,
		&hooksv1.CanUpdateMachineSetRequest{Current: current, Desired: desired})
	return strings.Join(decision.Reasons, "; "), err
}

// wantedSet returns the set with the deployment's template, also before it is created.
func (s *snapshot) wantedSet() *clusterv1.MachineSet {
	if current := s.current(); current != nil {
		return current
	}
	return s.desired(s.made, rolloutplan.SetStep{Set: s.made.Name}, map[string]string{}, false)
}

// objectsOf returns a set and its templates for a request to an extension.
func (r *Reconciler) objectsOf(ctx context.Context, set *clusterv1.MachineSet) (
	hooksv1.CanUpdateMachineSetRequestObjects, error,
) {
	template := set.Spec.Template.Spec
	var found [2]*unstructured.Unstructured
	for i, ref := range []contract.Reference{template.InfrastructureRef,
		template.Bootstrap.ConfigRef} {
		if !ref.IsDefined() {
			continue
		}
		object, err := r.references.Get(ctx, ref, set.Namespace)
		if err != nil {
			return hooksv1.CanUpdateMachineSetRequestObjects{}, err
		}
		found[i] = object.Unstructured
	}
	return runtimehook.NewMachineSetObjects(set, found[0], found[1]), nil
}

// replacements returns why machines are replaced, for the condition RollingOut.
func (s *snapshot) replacements() []string {
	var lines []string
	for _, set := range s.sets {
		if decision := s.inPlace[set.UID]; decision.Reason != "" {
			lines = append(lines, "* Replaced, not updated in place: "+decision.Reason)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
