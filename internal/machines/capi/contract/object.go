package contract

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A ReferencedObject is what a reference names. The methods return the fields of the contract; one of another type than
// the contract's counts as missing, since other controllers write them.
type ReferencedObject struct {
	*unstructured.Unstructured
	Served ServedKind
}

// String names the object.
func (o *ReferencedObject) String() string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// ProviderID returns what the instance is called by its provider, and by its Node.
func (o *ReferencedObject) ProviderID() string { return o.text("spec", "providerID") }

// FailureDomain returns where the instance is.
func (o *ReferencedObject) FailureDomain() string { return o.text("status", "failureDomain") }

// DataSecretName returns the Secret that a bootstrap config has made.
func (o *ReferencedObject) DataSecretName() string { return o.text("status", "dataSecretName") }

// IsProvisioned says that infrastructure is there to be used.
func (o *ReferencedObject) IsProvisioned() bool { return o.isInitialized("provisioned") }

// IsDataSecretCreated says that a bootstrap config has made its Secret.
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

// isInitialized reads the field that says so in the contract that the object keeps.
func (o *ReferencedObject) isInitialized(field string) bool {
	path := []string{"status", "initialization", field}
	if o.Served.Contract == V1Beta1 {
		path = []string{"status", "ready"}
	}
	value, _, _ := unstructured.NestedBool(o.Object, path...)
	return value
}
