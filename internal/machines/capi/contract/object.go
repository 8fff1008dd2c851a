package contract

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A ReferencedObject is the object that a reference names. The methods return the fields of the contract; a field of another
// type than the contract's counts as missing, since other controllers write it.
type ReferencedObject struct {
	*unstructured.Unstructured
	Served ServedKind
}

// String names the object.
func (o *ReferencedObject) String() string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// ProviderID returns the ID of the instance at its provider, which its Node has as well.
func (o *ReferencedObject) ProviderID() string { return o.text("spec", "providerID") }

// FailureDomain returns the failure domain of the instance.
func (o *ReferencedObject) FailureDomain() string { return o.text("status", "failureDomain") }

// DataSecretName returns the name of the Secret that the controller of a bootstrap config has created.
func (o *ReferencedObject) DataSecretName() string { return o.text("status", "dataSecretName") }

// IsProvisioned reports whether the infrastructure can be used.
func (o *ReferencedObject) IsProvisioned() bool { return o.isInitialized("provisioned") }

// IsDataSecretCreated reports whether the Secret of a bootstrap config was created.
func (o *ReferencedObject) IsDataSecretCreated() bool { return o.isInitialized("dataSecretCreated") }

// Addresses returns the addresses of the instance.
func (o *ReferencedObject) Addresses() clusterv1.MachineAddresses {
	var status struct {
		Addresses clusterv1.MachineAddresses `json:"addresses"`
	}
	o.readStatus(&status)
	return status.Addresses
}

// Conditions returns the conditions of the object.
func (o *ReferencedObject) Conditions() []metav1.Condition {
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	o.readStatus(&status)
	return status.Conditions
}

func (o *ReferencedObject) readStatus(into any) {
	if fields, ok := o.Object["status"].(map[string]any); ok {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
	}
}

func (o *ReferencedObject) text(path ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, path...)
	return value
}

// isInitialized returns a field of status.initialization, or its equivalent in the contract version that the object keeps.
func (o *ReferencedObject) isInitialized(field string) bool {
	path := []string{"status", "initialization", field}
	if o.Served.Contract == V1Beta1 {
		path = []string{"status", "ready"}
	}
	value, _, _ := unstructured.NestedBool(o.Object, path...)
	return value
}
