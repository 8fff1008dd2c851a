// Package extensionserver serves the runtime hooks of updates in place (Discovery, CanUpdateMachineSet, CanUpdateMachine and
// UpdateMachine) for programs that are runtime extensions: HTTPS, and JSON of Cluster API's own wire types. What an extension can
// change, and how, is the program's. Hooks of other kinds are not served.
//
// The side that asks is package runtimehook; the two share no code but Cluster API's types.
//
// ExtensionServer is the type to start from.
package extensionserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// mostOfRequest is how much of a request is read: far more than the objects that the API server takes.
const mostOfRequest = 20 << 20

// An ExtensionServer answers hooks by the functions of an extension. The response that they get has the status Success; an error that
// they return is answered as the status Failure, with its message.
type ExtensionServer struct {
	CanUpdateMachineSet func(context.Context, *hooksv1.CanUpdateMachineSetRequest, *hooksv1.CanUpdateMachineSetResponse) error
	CanUpdateMachine    func(context.Context, *hooksv1.CanUpdateMachineRequest, *hooksv1.CanUpdateMachineResponse) error
	UpdateMachine       func(context.Context, *hooksv1.UpdateMachineRequest, *hooksv1.UpdateMachineResponse) error
	// TimeoutSeconds is how long a call may take, 30 at most; 10 if it is 0.
	TimeoutSeconds int32
}

// response is what the responses of all hooks have in common.
type response interface {
	SetStatus(hooksv1.ResponseStatus)
	SetMessage(string)
}

// handlers are the handlers of an extension by their hooks.
var handlers = []struct{ hook, name string }{
	{"CanUpdateMachineSet", "can-update-machineset"},
	{"CanUpdateMachine", "can-update-machine"},
	{"UpdateMachine", "update-machine"},
}

// ServeHTTP implements http.Handler.
func (s *ExtensionServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/"+hooksv1.GroupVersion.String()+"/")
	hook, _, _ := strings.Cut(path, "/")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostOfRequest))
	if err != nil {
		http.Error(w, "the request can't be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	switch hook {
	case "discovery":
		answer(w, body, &hooksv1.DiscoveryRequest{}, &hooksv1.DiscoveryResponse{}, s.discover)
	case "canupdatemachineset":
		call(w, r, body, s.CanUpdateMachineSet)
	case "canupdatemachine":
		call(w, r, body, s.CanUpdateMachine)
	case "updatemachine":
		call(w, r, body, s.UpdateMachine)
	default:
		http.NotFound(w, r)
	}
}

// discover tells the hooks that are served.
func (s *ExtensionServer) discover(_ *hooksv1.DiscoveryRequest, told *hooksv1.DiscoveryResponse) error {
	seconds := s.TimeoutSeconds
	if seconds == 0 {
		seconds = hooksv1.DefaultHandlersTimeoutSeconds
	}
	policy := hooksv1.FailurePolicyFail
	for _, h := range handlers {
		told.Handlers = append(told.Handlers, hooksv1.ExtensionHandler{
			Name: h.name, TimeoutSeconds: &seconds, FailurePolicy: &policy,
			RequestHook: hooksv1.GroupVersionHook{APIVersion: hooksv1.GroupVersion.String(), Hook: h.hook},
		})
	}
	return nil
}

// call answers one hook by a function of the extension. The function's context ends when the caller waits no longer.
func call[Request any, Response any, R interface {
	*Response
	response
}](w http.ResponseWriter, r *http.Request, body []byte, do func(context.Context, *Request, R) error) {
	answer(w, body, new(Request), R(new(Response)), func(request *Request, response R) error { return do(r.Context(), request, response) })
}

// answer reads a request, has it answered, and writes the response.
func answer[Request any, R response](w http.ResponseWriter, body []byte, request *Request, told R, do func(*Request, R) error) {
	if err := json.Unmarshal(body, request); err != nil {
		http.Error(w, fmt.Sprintf("the request is no JSON of a %T: %v", request, err), http.StatusBadRequest)
		return
	}
	told.SetStatus(hooksv1.ResponseStatusSuccess)
	if err := do(request, told); err != nil {
		told.SetStatus(hooksv1.ResponseStatusFailure)
		told.SetMessage(err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(told) // a caller that has gone asks again
}
