// Package runtimehook asks runtime extensions whether machines of Cluster API can be updated in place, and has them do so.
// An extension is an HTTPS server that an ExtensionConfig names (runtime.cluster.x-k8s.io); it answers the runtime hooks
// Discovery, CanUpdateMachineSet, CanUpdateMachine and UpdateMachine on Cluster API's own wire types and paths.
//
// An ExtensionRegistry tells which extension answers a hook. A HookClient makes one call. What an extension says that it
// can change is taken of the specs only; anything else that differs means that machines are replaced, and is named by its
// path. The package writes nothing to the cluster: package extensionconfig next to it keeps ExtensionConfigs.
//
// NewInPlaceHooks is the call to start from.
package runtimehook

import (
	"time"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// The runtime hooks that are asked here, by the names that Cluster API gives them.
const (
	Discovery           = "Discovery"
	CanUpdateMachineSet = "CanUpdateMachineSet"
	CanUpdateMachine    = "CanUpdateMachine"
	UpdateMachine       = "UpdateMachine"
)

// A HookHandler is one function of an extension: it answers one hook. Its Name is the handler's own name, a dot, and the
// ExtensionConfig's.
type HookHandler struct {
	runtimev1.ExtensionHandler
	config *runtimev1.ExtensionConfig
}

// defaultTimeout is how long a handler may take that does not say how long.
const defaultTimeout = hooksv1.DefaultHandlersTimeoutSeconds * time.Second

func (h *HookHandler) timeout() time.Duration {
	if h.TimeoutSeconds <= 0 {
		return defaultTimeout
	}
	return time.Duration(h.TimeoutSeconds) * time.Second
}
