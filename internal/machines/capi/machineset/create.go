package machineset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/contract"
)

const (
	longestName  = 63 // a machine's name is that of its node, and the value of labels
	randomLength = 5
)

// createMachine creates a machine, and before it the objects of its templates. If the controller stops in between, the
// objects are deleted by deleteLeftovers.
func (r *ClusterMachineSetReconciler) createMachine(ctx context.Context, set *clusterv1.MachineSet) (name string, err error) {
	name, err = newName(set)
	if err != nil {
		return "", err
	}
	machine := desiredMachine(set, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}})
	template := set.Spec.Template.Spec
	machine.Spec.Version, machine.Spec.FailureDomain = template.Version, template.FailureDomain
	machine.Spec.Bootstrap.DataSecretName = template.Bootstrap.DataSecretName
	var made []clusterv1.ContractVersionedObjectReference
	defer func() {
		if err != nil {
			err = &creationError{name: name, err: errors.Join(err, deleteAll(ctx, r, set.Namespace, made))}
		}
	}()
	if template.Bootstrap.ConfigRef.IsDefined() {
		machine.Spec.Bootstrap.ConfigRef, err = r.clone(ctx, set, template.Bootstrap.ConfigRef, name)
		if err != nil {
			return name, err
		}
		made = append(made, machine.Spec.Bootstrap.ConfigRef)
	}
	machine.Spec.InfrastructureRef, err = r.clone(ctx, set, template.InfrastructureRef, name)
	if err != nil {
		return name, err
	}
	made = append(made, machine.Spec.InfrastructureRef)
	err = contract.Apply(ctx, r.cached, machine, fieldManager)
	if !isRefusal(err) {
		made = nil // the machine may exist, and use them
	}
	return name, err
}

// isRefusal reports whether the API server has refused a request. Without an answer, it may have executed the
// request.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError
}

// A creationError is why a machine can't be created, in the same words each time, though each try has another name.
type creationError struct {
	name string
	err  error
}

func (e *creationError) Error() string { return strings.ReplaceAll(e.err.Error(), e.name, "…") }

func (e *creationError) Unwrap() error { return e.err }

// clone creates an object from a template. The set owns it until the controller of Machines makes the machine its owner.
func (r *ClusterMachineSetReconciler) clone(ctx context.Context, set *clusterv1.MachineSet,
	template clusterv1.ContractVersionedObjectReference, name string,
) (clusterv1.ContractVersionedObjectReference, error) {
	owner := controllerOf(set)
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	made, err := r.references.Clone(ctx, template, contract.TemplateClone{
		Namespace: set.Namespace, Name: name, ClusterName: set.Spec.ClusterName, Owner: &owner, Manager: fieldManager,
	})
	if apierrors.IsNotFound(err) {
		return made, errors.Join(err, r.awaitTemplate(ctx, template))
	}
	if err != nil {
		return made, err
	}
	return made, applyMetadata(ctx, r, set, made)
}

// deleteAll deletes objects without a machine.
func deleteAll(ctx context.Context, r *ClusterMachineSetReconciler, namespace string, all []clusterv1.ContractVersionedObjectReference) error {
	var failures []error
	for _, reference := range all {
		object, err := r.references.Get(ctx, reference, namespace)
		if err == nil {
			err = r.references.Delete(ctx, object)
		}
		failures = append(failures, client.IgnoreNotFound(err))
	}
	return errors.Join(failures...)
}

// deleteLeftovers deletes the objects that were created from templates for machines that were not created. The machines of
// the snapshot were read from the API server.
func (r *ClusterMachineSetReconciler) deleteLeftovers(ctx context.Context, seen *clusterSetSnapshot) error {
	used := map[string]bool{}
	for _, machine := range seen.machines {
		used[keyOf(machine.Spec.InfrastructureRef)] = true
		used[keyOf(machine.Spec.Bootstrap.ConfigRef)] = true
	}
	template := seen.set.Spec.Template.Spec
	for _, reference := range []clusterv1.ContractVersionedObjectReference{template.InfrastructureRef, template.Bootstrap.ConfigRef} {
		if !reference.IsDefined() {
			continue
		}
		if err := r.deleteUnused(ctx, seen.set, reference, used); err != nil {
			return fmt.Errorf("delete what is left of machines that could not be made: %w", err)
		}
	}
	return nil
}

// deleteUnused deletes the objects that were created from templates of a kind, belong to the set, and are used by no machine.
func (r *ClusterMachineSetReconciler) deleteUnused(ctx context.Context, set *clusterv1.MachineSet,
	of clusterv1.ContractVersionedObjectReference, used map[string]bool,
) error {
	kind := schema.GroupKind{Group: of.APIGroup, Kind: strings.TrimSuffix(of.Kind, clusterv1.TemplateSuffix)}
	served, err := r.references.Served(ctx, kind)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(served.GroupVersion().WithKind(kind.Kind + "List"))
	err = r.cached.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: set.Spec.ClusterName})
	if err != nil {
		return fmt.Errorf("list %s: %w", served.Resource.Resource, err)
	}
	var unused []clusterv1.ContractVersionedObjectReference
	for _, object := range list.Items {
		ref := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: object.GetName()}
		isOurs := slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == set.UID })
		if isOurs && !used[keyOf(ref)] && object.GetDeletionTimestamp() == nil {
			unused = append(unused, ref)
		}
	}
	return deleteAll(ctx, r, set.Namespace, unused)
}

func keyOf(ref clusterv1.ContractVersionedObjectReference) string {
	return ref.APIGroup + "/" + ref.Kind + "/" + ref.Name
}

// newName returns a name for a machine of a set, by spec.machineNaming.template.
func newName(set *clusterv1.MachineSet) (string, error) {
	pattern := set.Spec.MachineNaming.Template
	if pattern == "" {
		pattern = "{{ .machineSet.name }}-{{ .random }}"
	}
	parsed, err := template.New("spec.machineNaming.template").Option("missingkey=error").Parse(pattern)
	if err != nil {
		return "", fmt.Errorf("name a machine: %w", err)
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"cluster":    map[string]string{"name": set.Spec.ClusterName},
		"machineSet": map[string]string{"name": set.Name},
		"random":     rand.String(randomLength),
	})
	if err != nil {
		return "", fmt.Errorf("name a machine: %w", err)
	}
	name := out.String()
	if len(name) > longestName {
		name = name[:longestName-randomLength] + rand.String(randomLength)
	}
	return name, nil
}
