// Package infra creates, reads and deletes the infrastructure of machines of machine.openshift.io: for each another
// object, of a kind that the machine's template names. It is created, has a providerID once the machine runs, is
// deleted, and exists until the machine is terminated.
//
// Nothing here is for a provider to implement: a provider is a controller of such a kind, for both machine APIs
// (docs/providers.md). Two that are built in are in kwok and external. The fields that a provider writes are read in
// package contract, for both APIs.
//
// Objects is the type to start from.
package infra

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runlevel/runlevel/internal/machines/contract"
)

// A Machine identifies a machine, and the infrastructure that it needs.
type Machine struct {
	types.NamespacedName
	UID    types.UID
	Labels map[string]string
	// Template is the desired infrastructure object: its apiVersion, kind and spec are used.
	Template *unstructured.Unstructured
}

// An Instance is the state of a machine's infrastructure.
type Instance struct {
	Kind       schema.GroupVersionKind
	Exists     bool
	IsDeleting bool
	// IsProvisioned is true if the machine runs: ProviderID is set then.
	IsProvisioned bool
	ProviderID    string
	Addresses     []corev1.NodeAddress
	// Failure is why it is not ready: the message of its condition Ready.
	Failure    string
	Finalizers []string
}

// An InvalidError is returned if the object of the template can't be created, now or later: its kind is not
// infrastructure, or its fields are refused.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

// An UnservedError is returned if the cluster does not serve the kind of the template, and so has no such object. The
// CustomResourceDefinition may be created later: it is often applied together with the first machines.
type UnservedError struct{ Message string }

func (e *UnservedError) Error() string { return e.Message }

// A RetryError has the pause before a retry.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

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
	written := contract.Object{Unstructured: object}
	instance.ProviderID, instance.Failure = written.ProviderID(), written.NotReady()
	for _, address := range written.Addresses() {
		instance.Addresses = append(instance.Addresses,
			corev1.NodeAddress{Type: corev1.NodeAddressType(address.Type), Address: address.Address})
	}
	instance.IsProvisioned = written.IsProvisioned() && instance.ProviderID != ""
	if written.IsProvisioned() && !instance.IsProvisioned {
		instance.Failure = fmt.Sprintf("%s is provisioned without a spec.providerID, which its controller has to set",
			describe(m))
	}
	return instance, nil
}
