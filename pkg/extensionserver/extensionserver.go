// Package extensionserver serves the runtime hooks of updates in place (Discovery, CanUpdateMachineSet,
// CanUpdateMachine and UpdateMachine) for programs that are runtime extensions: HTTPS, and JSON of Cluster API's own
// wire types. The program decides which changes it can apply, and applies them. Other hooks are not served.
//
// The client is package runtimehook; the two share no code but Cluster API's types.
//
// Start with Server.
package extensionserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
)

// maxOfRequest bounds the size of a request: far more than the objects that the API server accepts.
const maxOfRequest = 20 << 20

// A Server serves hooks by calling the functions of an extension. The status of the response is Success, or
// Failure with the message of the returned error.
type Server struct {
	CanUpdateMachineSet func(context.Context, *hooksv1.CanUpdateMachineSetRequest,
		*hooksv1.CanUpdateMachineSetResponse) error
	CanUpdateMachine func(context.Context, *hooksv1.CanUpdateMachineRequest, *hooksv1.CanUpdateMachineResponse) error
	UpdateMachine    func(context.Context, *hooksv1.UpdateMachineRequest, *hooksv1.UpdateMachineResponse) error
	// TimeoutSeconds limits the time of a call, to 30 seconds at most; 10 if it is 0.
	TimeoutSeconds int32
}

// response defines the common methods of the responses of all hooks.
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
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/"+hooksv1.GroupVersion.String()+"/")
	hook, _, _ := strings.Cut(path, "/")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOfRequest))
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

// discover returns the hooks that are served.
func (s *Server) discover(_ *hooksv1.DiscoveryRequest, response *hooksv1.DiscoveryResponse) error {
	seconds := s.TimeoutSeconds
	if seconds == 0 {
		seconds = hooksv1.DefaultHandlersTimeoutSeconds
	}
	policy := hooksv1.FailurePolicyFail
	for _, h := range handlers {
		response.Handlers = append(response.Handlers, hooksv1.ExtensionHandler{
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
	answer(w, body, new(Request), R(new(Response)), func(request *Request, response R) error {
		return do(r.Context(), request, response)
	})
}

// answer decodes a request, calls a function with it, and writes the response.
func answer[Request any, R response](w http.ResponseWriter, body []byte, request *Request, resp R,
	do func(*Request, R) error) {
	if err := json.Unmarshal(body, request); err != nil {
		http.Error(w, fmt.Sprintf("the request is not the JSON of a %T: %v", request, err), http.StatusBadRequest)
		return
	}
	resp.SetStatus(hooksv1.ResponseStatusSuccess)
	if err := do(request, resp); err != nil {
		resp.SetStatus(hooksv1.ResponseStatusFailure)
		resp.SetMessage(err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(resp) // a disconnected caller will retry
}

// ServingFlags are the flags for the address and the certificate of an extension.
type ServingFlags struct{ address, certFile, keyFile string }

// AddFlags adds the flags to those of a program.
func (f *ServingFlags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.address, "listen", ":9443", "the address where hooks are answered")
	flags.StringVar(&f.certFile, "cert-file", "",
		"the certificate, as PEM, for the host name in the ExtensionConfig; it may change at any time")
	flags.StringVar(&f.keyFile, "key-file", "", "the key of --cert-file")
}

// slowest bounds the time to read a request, and to write its response: more than any call may last.
const slowest = time.Minute

// Serve serves hooks until ctx ends. The certificate is read for each connection, so that a renewed one is used at
// once.
func (s *Server) Serve(ctx context.Context, f ServingFlags) error {
	certificate := func() (*tls.Certificate, error) {
		found, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		return &found, err
	}
	if _, err := certificate(); err != nil {
		return fmt.Errorf("read --cert-file and --key-file: %w", err)
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	fmt.Fprintln(os.Stderr, "answering runtime hooks at", listener.Addr())
	server := &http.Server{
		Handler: s, ReadTimeout: slowest, WriteTimeout: slowest,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
