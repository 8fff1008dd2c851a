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

	"k8s.io/apimachinery/pkg/types"
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

// A HookHandler is one function of an extension: it answers one hook.
type HookHandler struct {
	Name          string // in status.handlers: the handler's own name, a dot, and the ExtensionConfig's
	Hook          string
	Timeout       time.Duration
	FailurePolicy runtimev1.FailurePolicy

	config *runtimev1.ExtensionConfig
}

// defaultTimeout is how long a handler may take that does not say how long.
const defaultTimeout = hooksv1.DefaultHandlersTimeoutSeconds * time.Second

// newHookHandler returns a handler of an ExtensionConfig's status.
func newHookHandler(config *runtimev1.ExtensionConfig, found runtimev1.ExtensionHandler) *HookHandler {
	h := &HookHandler{
		Name: found.Name, Hook: found.RequestHook.Hook, Timeout: time.Duration(found.TimeoutSeconds) * time.Second,
		FailurePolicy: found.FailurePolicy, config: config,
	}
	if h.Timeout <= 0 {
		h.Timeout = defaultTimeout
	}
	return h
}

// version is what an answer depends on, beside the request: a changed ExtensionConfig may name another extension.
type version struct {
	config     types.UID
	generation int64
	handler    string
}

func (h *HookHandler) version() version { return version{h.config.UID, h.config.Generation, h.Name} }
