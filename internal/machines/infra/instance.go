package infra

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/machines/contract"
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
	written := contract.ReferencedObject{Unstructured: object}
	instance.ProviderID, instance.Failure = written.ProviderID(), written.NotReady()
	for _, address := range written.Addresses() {
		instance.Addresses = append(instance.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(address.Type), Address: address.Address})
	}
	instance.IsProvisioned = written.IsProvisioned() && instance.ProviderID != ""
	if written.IsProvisioned() && !instance.IsProvisioned {
		instance.Failure = fmt.Sprintf("%s is provisioned without a spec.providerID, which its controller has to set", describe(m))
	}
	return instance, nil
}
