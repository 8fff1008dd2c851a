// Package contract is what machines and their providers have agreed on: the fields of an infrastructure object that a
// provider writes and the controllers of machines read (Object), the same for both APIs. docs/providers.md is for
// authors of providers.
//
// For Cluster API, the package also reads, clones and deletes the objects that Machines and MachineSets refer to:
// infrastructure, bootstrap configs and the templates of both. A reference names a group, a kind and a name; a label of
// the CustomResourceDefinition names the version of the kind that keeps the contract. The objects are of any kind, so
// they are read as maps, and only the fields of the contract are used.
//
// The package decides nothing and remembers nothing. Start with References.Get.
package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The supported versions of the contract. For kinds that keep both, the first one is used.
const (
	V1Beta2 = "v1beta2"
	V1Beta1 = "v1beta1"
)

// References finds the objects that Machines and MachineSets refer to. For each kind it needs the rights get and
// delete, for objects that it clones create, and for CustomResourceDefinitions get, or list and watch if the Client has
// a cache.
type References struct {
	// Client must read the objects from the server: a manager's client does, because it does not cache unstructured
	// objects.
	Client client.Client
}

// A Reference names an object by its group, kind and name.
type Reference = clusterv1.ContractVersionedObjectReference

// A ServedKind is the version of a kind that keeps the contract.
type ServedKind struct {
	schema.GroupVersionKind
	Resource schema.GroupVersionResource
	Contract string // V1Beta2 or V1Beta1
}

// Served returns the version of a kind that keeps the contract: the newest one that the label of its
// CustomResourceDefinition names.
func (r References) Served(ctx context.Context, kind schema.GroupKind) (ServedKind, error) {
	mapping, err := r.Client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return ServedKind{}, fmt.Errorf("the cluster serves no kind %s of %s: install its CustomResourceDefinition, "+
			"or refer to a served kind (kubectl api-resources)", kind.Kind, kind.Group)
	}
	if err != nil {
		return ServedKind{}, fmt.Errorf("look for kind %s: %w", kind, printable.Error(err))
	}
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	name := mapping.Resource.Resource + "." + kind.Group
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
		// The error is not wrapped: a missing definition must not be mistaken for a missing object.
		return ServedKind{}, fmt.Errorf("get CustomResourceDefinition %s: %s", name, printable.Line(err.Error()))
	}
	return servedKind(kind, mapping.Resource.Resource, definition.Labels)
}

// servedKind reads the labels of a definition: the key names the contract, the value versions joined by underscores.
func servedKind(kind schema.GroupKind, resource string, labels map[string]string) (ServedKind, error) {
	for _, contract := range []string{V1Beta2, V1Beta1} {
		if value := labels[clusterv1.GroupVersion.Group+"/"+contract]; value != "" {
			newest := slices.MaxFunc(strings.Split(value, "_"), version.CompareKubeAwareVersionStrings)
			return ServedKind{
				GroupVersionKind: kind.WithVersion(newest), Contract: contract,
				Resource: schema.GroupVersionResource{Group: kind.Group, Version: newest, Resource: resource},
			}, nil
		}
	}
	return ServedKind{},
		fmt.Errorf("CustomResourceDefinition %s.%s does not name the version that keeps Cluster API's contract: "+
			"label it, such as %s/%s=v1", resource, kind.Group, clusterv1.GroupVersion.Group, V1Beta2)
}

// Get returns the object that a reference names, in the namespace of the referring object. The error is NotFound only
// if the kind is served and the object does not exist.
func (r References) Get(ctx context.Context, reference Reference, namespace string) (*Object, error) {
	if !reference.IsDefined() {
		return nil, errors.New("the reference is empty: write its apiGroup, kind and name")
	}
	kind, err := r.Served(ctx, reference.GroupKind())
	if err != nil {
		return nil, err
	}
	object := &Object{Unstructured: &unstructured.Unstructured{}, Served: kind}
	object.SetGroupVersionKind(kind.GroupVersionKind)
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: reference.Name}, object.Unstructured)
	if meta.IsNoMatchError(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return nil,
			fmt.Errorf("the cluster does not serve %s.%s.%s, which a label of its CustomResourceDefinition names",
				kind.Resource.Resource, kind.Version, kind.Group)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", reference.Kind, namespace, reference.Name, printable.Error(err))
	}
	return object, nil
}

// Delete requests the deletion of an object, which is complete when Get finds none.
func (r References) Delete(ctx context.Context, object *Object) error {
	uid := object.GetUID()
	err := r.Client.Delete(ctx, object.Unstructured, client.Preconditions{UID: &uid},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", object, printable.Error(err))
	}
	return nil
}

// FindCluster returns the Cluster that a spec.clusterName names; nil if there is none.
func FindCluster(ctx context.Context, reader client.Reader, namespace, name string) (*clusterv1.Cluster, error) {
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Cluster %s/%s: %w", namespace, name, err)
	}
	return cluster, nil
}

// IsPaused reports whether an object must not be changed: it is annotated, or its Cluster is paused. The Cluster may be
// nil.
func IsPaused(object client.Object, cluster *clusterv1.Cluster) bool {
	_, isAnnotated := object.GetAnnotations()[clusterv1.PausedAnnotation]
	return isAnnotated || cluster != nil && ptr.Deref(cluster.Spec.Paused, false)
}

// ClusterPauses drops updates of Clusters, except for the beginning and the end of a pause.
var ClusterPauses = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isCluster := e.ObjectOld.(*clusterv1.Cluster)
	after, ok := e.ObjectNew.(*clusterv1.Cluster)
	return !isCluster || !ok || ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
}}

// ClusterOwner returns the reference to a Cluster that owns objects.
func ClusterOwner(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: clusterv1.GroupVersion.String(),
		Kind:       "Cluster",
		Name:       cluster.Name,
		UID:        cluster.UID,
	}
}

// IsOwnerOfKind reports whether an owner has one of these kinds of Cluster API, in any version.
func IsOwnerOfKind(owner metav1.OwnerReference, kinds ...string) bool {
	return strings.HasPrefix(owner.APIVersion, clusterv1.GroupVersion.Group+"/") && slices.Contains(kinds, owner.Kind)
}

// An Object is the object that a reference names. The methods return the fields of the contract; a field of another
// type than the contract's counts as missing, since other controllers write it.
type Object struct {
	*unstructured.Unstructured
	Served ServedKind
}

// String names the object.
func (o *Object) String() string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// ProviderID returns the ID of the instance at its provider, which its Node has as well.
func (o *Object) ProviderID() string { return o.text("spec", "providerID") }

// FailureDomain returns the failure domain of the instance.
func (o *Object) FailureDomain() string { return o.text("status", "failureDomain") }

// DataSecretName returns the name of the Secret that the controller of a bootstrap config has created.
func (o *Object) DataSecretName() string { return o.text("status", "dataSecretName") }

// IsProvisioned reports whether the infrastructure can be used.
func (o *Object) IsProvisioned() bool { return o.isInitialized("provisioned") }

// IsDataSecretCreated reports whether the Secret of a bootstrap config was created.
func (o *Object) IsDataSecretCreated() bool { return o.isInitialized("dataSecretCreated") }

// Addresses returns the addresses of the instance.
func (o *Object) Addresses() clusterv1.MachineAddresses {
	var addresses clusterv1.MachineAddresses
	for _, fields := range o.items("addresses") {
		kind, _ := fields["type"].(string)
		if address, _ := fields["address"].(string); address != "" {
			addresses = append(addresses,
				clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(kind), Address: address})
		}
	}
	return addresses
}

// NotReady returns the message of the condition Ready, or its reason, while it is not True.
func (o *Object) NotReady() string {
	for _, condition := range o.items("conditions") {
		if condition["type"] == "Ready" && condition["status"] != "True" {
			reason, _ := condition["reason"].(string)
			message, _ := condition["message"].(string)
			return printable.Line(cmp.Or(message, reason))
		}
	}
	return ""
}

// Conditions returns the conditions of the object.
func (o *Object) Conditions() []metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if fields, ok := o.Object["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status)
	}
	return status.Conditions
}

// items returns the objects of a list in the status.
func (o *Object) items(field string) []map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", field)
	list, _ := value.([]any)
	var items []map[string]any
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			items = append(items, fields)
		}
	}
	return items
}

func (o *Object) text(path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

// isInitialized returns a field of status.initialization, or its equivalent in the contract version that the object
// keeps.
func (o *Object) isInitialized(field string) bool {
	path := []string{"status", "initialization", field}
	if o.Served.Contract == V1Beta1 {
		path = []string{"status", "ready"}
	}
	value, _, _ := unstructured.NestedBool(o.Object, path...)
	return value
}
