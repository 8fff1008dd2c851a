package infra

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// instanceOf reads the fields of the contract from an object, which may be nil. Fields of another type than the
// contract's count as missing: other controllers write them.
func instanceOf(m Machine, object *unstructured.Unstructured) (Instance, error) {
	instance := Instance{Kind: m.Template.GroupVersionKind()}
	if object == nil {
		return instance, nil
	}
	if err := checkOwner(m, object); err != nil {
		return Instance{}, err
	}
	instance.Exists = true
	instance.IsDeleting = object.GetDeletionTimestamp() != nil
	instance.Finalizers = object.GetFinalizers()
	instance.ProviderID, _, _ = unstructured.NestedString(object.Object, "spec", "providerID")
	instance.Addresses = addresses(object)
	instance.Failure = failure(object)
	isProvisioned, _, _ := unstructured.NestedBool(object.Object, "status", "initialization", "provisioned")
	instance.IsProvisioned = isProvisioned && instance.ProviderID != ""
	if isProvisioned && !instance.IsProvisioned {
		instance.Failure = fmt.Sprintf("%s is provisioned without a spec.providerID, which its controller has to set", describe(m))
	}
	return instance, nil
}

// addresses returns status.addresses.
func addresses(object *unstructured.Unstructured) []corev1.NodeAddress {
	items, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "addresses")
	list, _ := items.([]any)
	var addresses []corev1.NodeAddress
	for _, item := range list {
		fields, _ := item.(map[string]any)
		kind, _ := fields["type"].(string)
		address, _ := fields["address"].(string)
		if address != "" {
			addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: address})
		}
	}
	return addresses
}

// failure returns the message of the condition Ready of an object that is not ready.
func failure(object *unstructured.Unstructured) string {
	items, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := items.([]any)
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] != "Ready" || condition["status"] == "True" {
			continue
		}
		reason, _ := condition["reason"].(string)
		message, _ := condition["message"].(string)
		if message == "" {
			message = reason
		}
		return printable.Line(message)
	}
	return ""
}
