package contract

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Object is the object that a reference names. The methods return the fields of the contract; a field of another
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
