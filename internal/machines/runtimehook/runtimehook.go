// Package runtimehook calls runtime extensions that decide whether machines of Cluster API can be updated in place, and
// update them. An extension is an HTTPS server that an ExtensionConfig names (runtime.cluster.x-k8s.io); it answers the
// runtime hooks Discovery, CanUpdateMachineSet, CanUpdateMachine and UpdateMachine on Cluster API's own wire types and
// paths.
//
// A Registry finds the extension for a hook. A Client makes one call. Only changes of specs are accepted
// from an extension; if anything else differs, machines are replaced, and the differences are listed by their paths.
// The package writes nothing to the cluster: package extensionconfig maintains ExtensionConfigs.
//
// Start with NewInPlaceHooks.
package runtimehook

import (
	"time"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// The runtime hooks that are called here, with Cluster API's names.
const (
	Discovery           = "Discovery"
	CanUpdateMachineSet = "CanUpdateMachineSet"
	CanUpdateMachine    = "CanUpdateMachine"
	UpdateMachine       = "UpdateMachine"
)

// A Handler is one function of an extension: it answers one hook. Its Name is the handler's own name, a dot, and
// the ExtensionConfig's.
type Handler struct {
	runtimev1.ExtensionHandler
	config *runtimev1.ExtensionConfig
}

// defaultTimeout is the timeout of a handler without one.
const defaultTimeout = hooksv1.DefaultHandlersTimeoutSeconds * time.Second

func (h *Handler) timeout() time.Duration {
	if h.TimeoutSeconds <= 0 {
		return defaultTimeout
	}
	return time.Duration(h.TimeoutSeconds) * time.Second
}
