package machinetemplate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/template"
)

const (
	longestName  = 63 // a machine's name is that of its node, and the value of labels
	randomLength = 5
)

// Create creates a machine with its bootstrap config and its infrastructure. If the machine is refused, the objects
// that were created for it are deleted. The error is NotFound if a template is missing.
func (w Writer) Create(ctx context.Context, t Template, name string) (err error) {
	machine := t.desired(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}})
	machine.Spec.Version, machine.Spec.FailureDomain = t.Spec.Version, t.Spec.FailureDomain
	machine.Spec.Bootstrap.DataSecretName = t.Spec.Bootstrap.DataSecretName
	var made []contract.Reference
	defer func() {
		if err != nil {
			err = &creationError{name: name, err: errors.Join(err, w.deleteAll(ctx, t.Namespace, made))}
		}
	}()
	if t.Spec.Bootstrap.ConfigRef.IsDefined() {
		machine.Spec.Bootstrap.ConfigRef, err = w.clone(ctx, t, t.Spec.Bootstrap.ConfigRef, name)
		if err != nil {
			return err
		}
		made = append(made, machine.Spec.Bootstrap.ConfigRef)
	}
	machine.Spec.InfrastructureRef, err = w.clone(ctx, t, t.Spec.InfrastructureRef, name)
	if err != nil {
		return err
	}
	made = append(made, machine.Spec.InfrastructureRef)
	err = w.apply(ctx, machine)
	if !isRefusal(err) {
		made = nil // the machine may exist, and use them
	}
	return err
}

// isRefusal reports whether the API server refused a write, so that nothing was created. After an error of the
// connection or of the server, the object may exist.
func isRefusal(err error) bool {
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError
}

// A creationError is an error of a creation. The name of the machine, which no later attempt has, is left out of the
// text, so that repeated errors are equal.
type creationError struct {
	name string
	err  error
}

// Error returns the text of the error, without the name of the machine.
func (e *creationError) Error() string { return strings.ReplaceAll(e.err.Error(), e.name, "…") }

func (e *creationError) Unwrap() error { return e.err }

// clone creates an object of a machine from its template. The metadata has a field manager of its own, so that an
// update in place, which applies the template, keeps it.
func (w Writer) clone(ctx context.Context, t Template, template contract.Reference,
	name string) (
	contract.Reference, error,
) {
	made, err := w.References.Clone(ctx, template, t.cloneForCreation(name, w.Manager))
	if err != nil {
		return made, err
	}
	return made, w.applyMetadata(ctx, t, made)
}

// cloneForCreation describes a new object of a machine.
func (t Template) cloneForCreation(name string, manager client.FieldOwner) contract.Clone {
	wanted := t.clone(name, manager)
	owner := t.Owner
	owner.Controller, owner.BlockOwnerDeletion = nil, nil
	wanted.Owner = &owner
	return wanted
}

// Try returns why a machine can't be created, as far as its bootstrap config and its infrastructure show: both are
// created in a dry run.
func (w Writer) Try(ctx context.Context, t Template, name string) error {
	for _, template := range []contract.Reference{t.Spec.Bootstrap.ConfigRef,
		t.Spec.InfrastructureRef} {
		if !template.IsDefined() {
			continue
		}
		if _, err := w.References.Clone(ctx, template, t.cloneForCreation(name, w.Manager),
			client.DryRunAll); err != nil {
			return &creationError{name: name, err: err}
		}
	}
	return nil
}

// deleteAll deletes objects that were created for a machine that could not be created.
func (w Writer) deleteAll(ctx context.Context, namespace string, all []contract.Reference) error {
	var failures []error
	for _, reference := range all {
		object, err := w.References.Get(ctx, reference, namespace)
		if err == nil {
			err = w.References.Delete(ctx, object)
		}
		failures = append(failures, client.IgnoreNotFound(err))
	}
	return errors.Join(failures...)
}

// DeleteLeftovers deletes the objects of machines that were never created, for example because the process was killed:
// the owner owns these objects, and none of its machines refers to them.
func (w Writer) DeleteLeftovers(ctx context.Context, t Template, machines map[string]*clusterv1.Machine) error {
	used := map[string]bool{}
	for _, machine := range machines {
		used[keyOf(machine.Spec.InfrastructureRef)] = true
		used[keyOf(machine.Spec.Bootstrap.ConfigRef)] = true
	}
	for _, reference := range []contract.Reference{t.Spec.InfrastructureRef,
		t.Spec.Bootstrap.ConfigRef} {
		if !reference.IsDefined() {
			continue
		}
		if err := w.deleteUnused(ctx, t, reference, used); err != nil {
			return fmt.Errorf("delete the objects of machines that could not be created: %w", err)
		}
	}
	return nil
}

// deleteUnused deletes the unused objects that were created from templates of a kind.
func (w Writer) deleteUnused(ctx context.Context, t Template, template contract.Reference, used map[string]bool) error {
	kind := schema.GroupKind{Group: template.APIGroup, Kind: kindOf(template)}
	served, err := w.References.Served(ctx, kind)
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(served.GroupVersion().WithKind(kind.Kind + "List"))
	err = w.Client.List(ctx, list, client.InNamespace(t.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: t.Spec.ClusterName})
	if err != nil {
		return fmt.Errorf("list %s: %w", served.Resource.Resource, err)
	}
	var failures []error
	for i := range list.Items {
		object := &list.Items[i]
		ref := contract.Reference{APIGroup: kind.Group, Kind: kind.Kind, Name: object.GetName()}
		isOurs := slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			return o.UID == t.Owner.UID
		})
		if isOurs && !used[keyOf(ref)] && object.GetDeletionTimestamp() == nil {
			failures = append(failures, client.IgnoreNotFound(patch.DeleteWithLock(ctx, w.Client, object)))
		}
	}
	return errors.Join(failures...)
}

func keyOf(ref contract.Reference) string {
	return ref.APIGroup + "/" + ref.Kind + "/" + ref.Name
}

// NewName returns a name for a new machine. The pattern reads the names of the cluster and of the owner, under the
// owner's key, and a random text. If the name is too long, it is shortened and ends with another random text.
func NewName(pattern string, cluster, key, owner string) (string, error) {
	if pattern == "" {
		pattern = "{{ ." + key + ".name }}-{{ .random }}"
	}
	const field = "spec.machineNaming.template"
	trees, err := template.Parse(field, pattern)
	if err != nil {
		return "", fmt.Errorf("name a machine: %w", err)
	}
	var out bytes.Buffer
	err = template.Execute(trees[field], &out, map[string]any{
		"cluster": map[string]string{"name": cluster},
		key:       map[string]string{"name": owner},
		"random":  rand.String(randomLength),
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
