// Package machinetemplate creates the Machines of Cluster API's owners of machines, a MachineSet or a control plane,
// from a template, and keeps them like it: a Machine with its infrastructure and its bootstrap config, the fields of
// the template that need no new machine, and the desired state of an update in place.
//
// The package decides neither the number of machines, nor which one is replaced or updated: their owners do.
//
// A Template defines the contents of new machines, and a Writer writes machines. Start with Writer.Create.
package machinetemplate

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/annotation"
	"github.com/runlevel/runlevel/internal/machines/capi/rolloutrules"
	"github.com/runlevel/runlevel/internal/machines/contract"
)

// A Template describes the machines of an owner.
type Template struct {
	Namespace string
	Owner     metav1.OwnerReference // the controller of the machines
	// Labels and Annotations are those of the machines, and of their infrastructure and bootstrap configs.
	Labels, Annotations map[string]string
	// Spec has the fields of the machines. Its references name the templates of the objects to which the machines
	// refer.
	Spec clusterv1.MachineSpec
}

// A Writer writes machines.
type Writer struct {
	Client     client.Client
	Live       client.Reader // reads from the API server
	References contract.References
	// Manager owns the fields of the machines, and MetadataManager the labels and annotations of the objects to which
	// they refer.
	Manager, MetadataManager client.FieldOwner
}

// NewWriter returns a writer with the clients of a manager.
func NewWriter(manager ctrl.Manager, fieldManager client.FieldOwner) Writer {
	return Writer{
		Client:          manager.GetClient(),
		Live:            manager.GetAPIReader(),
		References:      contract.References{Client: manager.GetClient()},
		Manager:         fieldManager,
		MetadataManager: fieldManager + "-metadata",
	}
}

// IsCurrent reports whether a machine has all fields of the template that need no new machine.
func (t Template) IsCurrent(machine *clusterv1.Machine) bool {
	changed := machine.DeepCopy()
	setMutable(&changed.Spec, &t.Spec)
	if !equality.Semantic.DeepEqual(changed.Spec, machine.Spec) {
		return false
	}
	return machine.DeletionTimestamp != nil ||
		labels.Set(t.Labels).AsSelectorPreValidated().Matches(labels.Set(machine.Labels)) &&
			labels.Set(t.Annotations).AsSelectorPreValidated().Matches(labels.Set(machine.Annotations)) &&
			machine.Annotations[annotation.AppliedTemplate] == t.hash()
}

// setMutable sets the fields that can change without a new machine. The timeout of the deletion of a Node has a
// default, which other writers of Machines may have set.
func setMutable(spec, template *clusterv1.MachineSpec) {
	before := spec.Deletion.NodeDeletionTimeoutSeconds
	rolloutrules.SetMutable(spec, template)
	spec.Deletion.NodeDeletionTimeoutSeconds = cmp.Or(spec.Deletion.NodeDeletionTimeoutSeconds, before)
}

// desired returns the desired state of a machine. Fields that need a new machine are the machine's own.
func (t Template) desired(machine *clusterv1.Machine) *clusterv1.Machine {
	desired := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: machine.Name, UID: machine.UID, ResourceVersion: machine.ResourceVersion,
			Labels: t.Labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{t.Owner},
			// a machine is never removed before its infrastructure
			Finalizers: []string{clusterv1.MachineFinalizer},
		},
		Spec: *t.Spec.DeepCopy(),
	}
	maps.Copy(desired.Annotations, t.Annotations)
	desired.Annotations[annotation.AppliedTemplate] = t.hash()
	desired.Spec.Bootstrap = machine.Spec.Bootstrap
	desired.Spec.InfrastructureRef = machine.Spec.InfrastructureRef
	desired.Spec.Version, desired.Spec.FailureDomain = machine.Spec.Version, machine.Spec.FailureDomain
	return desired
}

// hash returns a hash of the fields that are applied to existing machines.
func (t Template) hash() string {
	var mutable clusterv1.MachineSpec
	setMutable(&mutable, &t.Spec)
	hash := fnv.New64a()
	// Maps are written with their keys in order.
	_ = json.NewEncoder(hash).Encode([]any{t.Labels, t.Annotations, mutable})
	return fmt.Sprintf("%016x", hash.Sum64())
}

// clone describes the objects of a machine that are created from templates.
func (t Template) clone(name string, manager client.FieldOwner) contract.Clone {
	return contract.Clone{Namespace: t.Namespace, Name: name, ClusterName: t.Spec.ClusterName, Manager: manager}
}

// LabelValue returns a name as the value of a label. Cluster API's hash replaces a long name.
func LabelValue(name string) string {
	if len(validation.IsValidLabelValue(name)) == 0 {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // never fails
	return fmt.Sprintf("hash_%s_z", base64.RawURLEncoding.EncodeToString(hash.Sum(nil)))
}

// kindOf returns the kind of the objects that are created from a template.
func kindOf(template contract.Reference) string {
	return strings.TrimSuffix(template.Kind, clusterv1.TemplateSuffix)
}
