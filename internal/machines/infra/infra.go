// Package infra is the contract between a machine and what it runs on. The infrastructure of a machine is
// another object, of a kind that the machine's template names: it is made, says its providerID once the
// machine runs, is deleted, and is there until the machine is gone. Any controller can fulfil the contract
// (docs/machines.md); two that do are in kwok and external.
//
// Provider is what machine controllers ask; ObjectProvider is the one for clusters.
package infra

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Provider makes and deletes the infrastructure of machines. Each call can be repeated.
type Provider interface {
	// Get returns the state of a machine's infrastructure.
	Get(ctx context.Context, m Machine) (Instance, error)
	// Create has the infrastructure made, unless it is there.
	Create(ctx context.Context, m Machine) (Instance, error)
	// Delete has the infrastructure deleted. It is gone when Get finds none.
	Delete(ctx context.Context, m Machine) (Instance, error)
}

// A Machine is one whose infrastructure is asked for.
type Machine struct {
	types.NamespacedName
	UID    types.UID
	Labels map[string]string
	// Template is the infrastructure object that is wanted: its apiVersion, kind and spec count.
	Template *unstructured.Unstructured
}

// An Instance is what there is of a machine's infrastructure.
type Instance struct {
	Kind       schema.GroupVersionKind
	Exists     bool
	IsDeleting bool
	// IsProvisioned says that the machine runs: ProviderID is set then.
	IsProvisioned bool
	ProviderID    string
	Addresses     []corev1.NodeAddress
	// Failure is why it is not ready, as its own condition Ready says.
	Failure    string
	Finalizers []string
}

// An InvalidError says that what the template asks for can't be made, now or later: it is no infrastructure, or its
// fields are refused.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

// An UnservedError says that the cluster does not serve the kind of the template, and has no such object. Its definition
// may come later: it is often applied together with the first machines.
type UnservedError struct{ Message string }

func (e *UnservedError) Error() string { return e.Message }

// A RetryError says when to ask again.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }
