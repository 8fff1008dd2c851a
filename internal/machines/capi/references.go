package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
)

// referenced is the observed state of an object that the Machine refers to.
type referenced struct {
	object  *contract.Object // nil if there is none
	isGone  bool
	problem error // why it could not be read
}

// gatherReferences reads infrastructure and bootstrap config, and makes the Machine their owner.
func (p *machineScope) gatherReferences(ctx context.Context) error {
	p.infrastructure = p.r.lookAt(ctx, p.m, p.m.Spec.InfrastructureRef)
	if p.m.Spec.Bootstrap.ConfigRef.IsDefined() {
		p.bootstrap = p.r.lookAt(ctx, p.m, p.m.Spec.Bootstrap.ConfigRef)
	} else {
		p.bootstrap.isGone = true
	}
	return errors.Join(p.infrastructure.problem, p.bootstrap.problem)
}

// lookAt reads an object that a Machine refers to, and makes the Machine its owner.
func (r *Reconciler) lookAt(ctx context.Context, m *clusterv1.Machine,
	to clusterv1.ContractVersionedObjectReference) referenced {
	if !isOfMachine(to) {
		if !m.DeletionTimestamp.IsZero() {
			return referenced{isGone: true}
		}
		return referenced{problem: fmt.Errorf("%s of %s is not a kind of infrastructure or bootstrap config: refer "+
			"to an object that is "+
			"deleted with the Machine", to.Kind, to.APIGroup)}
	}
	object, err := r.references.Get(ctx, to, m.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		// Its kind is watched nevertheless: the object may be created later.
		if served, err := r.references.Served(ctx, to.GroupKind()); err == nil {
			err = r.watcher.Watch(served.GroupVersionKind, machineOf)
			return referenced{isGone: err == nil, problem: err}
		}
		return referenced{isGone: true}
	case err != nil:
		return referenced{problem: err}
	}
	if err := errors.Join(r.watcher.Watch(object.Served.GroupVersionKind, machineOf),
		r.claim(ctx, m, object)); err != nil {
		return referenced{problem: err}
	}
	return referenced{object: object}
}

// isOfMachine reports whether a reference is to a kind whose objects belong to one Machine. Others must not be deleted
// by an account that may only create and delete Machines.
func isOfMachine(to clusterv1.ContractVersionedObjectReference) bool {
	return to.APIGroup != clusterv1.GroupVersion.Group && !strings.HasPrefix(to.APIGroup, "controlplane.") &&
		!strings.HasSuffix(to.Kind, clusterv1.TemplateSuffix)
}

// claim makes the Machine the controller of an object. The owner of the Machine created the object too, and owns it
// until then.
func (r *Reconciler) claim(ctx context.Context, m *clusterv1.Machine, object *contract.Object) error {
	wanted := *metav1.NewControllerRef(m, clusterv1.GroupVersion.WithKind("Machine"))
	maker := metav1.GetControllerOf(m)
	var owners []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		switch {
		case owner.UID == wanted.UID, maker != nil && owner.UID == maker.UID:
		case ptr.Deref(owner.Controller, false):
			return fmt.Errorf("%s belongs to %s %s, and a Machine needs one of its own: refer to another one, or "+
				"remove that owner",
				object, owner.Kind, owner.Name)
		default:
			owners = append(owners, owner)
		}
	}
	owners = append(owners, wanted)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	if slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return equality.Semantic.DeepEqual(o, wanted)
	}) &&
		len(owners) == len(object.GetOwnerReferences()) && labels[clusterv1.ClusterNameLabel] == m.Spec.ClusterName {
		return nil
	}
	base := object.DeepCopy()
	labels[clusterv1.ClusterNameLabel] = m.Spec.ClusterName
	object.SetLabels(labels)
	object.SetOwnerReferences(owners)
	if err := patch.WithLock(ctx, r.client, object.Unstructured, base); err != nil {
		return fmt.Errorf("make the Machine the owner of %s: %w", object, err)
	}
	return nil
}

// writeSpec copies the fields of the infrastructure and of the bootstrap config into the Machine.
func (p *machineScope) writeSpec(ctx context.Context) error {
	base := p.m.DeepCopy()
	p.copyBootstrap()
	p.copyInfrastructure()
	return p.r.patch(ctx, p.m, base, "copy the fields of the infrastructure into the Machine")
}

func (f *machineState) copyBootstrap() {
	config, created := f.bootstrap.object, &f.status.Initialization.BootstrapDataSecretCreated
	if config == nil {
		return
	}
	switch {
	case f.m.Spec.Bootstrap.DataSecretName != nil:
		*created = ptr.To(true)
	case config.IsDataSecretCreated() && config.DataSecretName() != "" && config.GetDeletionTimestamp() == nil:
		f.m.Spec.Bootstrap.DataSecretName, *created = ptr.To(config.DataSecretName()), ptr.To(true)
	}
}

func (f *machineState) copyInfrastructure() {
	object, provisioned := f.infrastructure.object, &f.status.Initialization.InfrastructureProvisioned
	if object == nil || object.GetDeletionTimestamp() != nil ||
		!object.IsProvisioned() && !ptr.Deref(*provisioned, false) ||
		object.ProviderID() == "" {
		return
	}
	f.m.Spec.ProviderID, *provisioned = object.ProviderID(), ptr.To(true)
	if addresses := object.Addresses(); len(addresses) > 0 {
		f.status.Addresses = addresses
	}
	if domain := object.FailureDomain(); domain != "" {
		f.status.FailureDomain = domain
	}
}

func same(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }
