// Package infra creates, reads and deletes the infrastructure of machines of machine.openshift.io: for each another
// object, of a kind that the machine's template names. It is created, has a providerID once the machine runs, is
// deleted, and exists until the machine is terminated.
//
// Nothing here is for a provider to implement: a provider is a controller of such a kind, for both machine APIs
// (docs/providers.md). Two that are built in are in kwok and external. The fields that a provider writes are read in
// package contract, for both APIs.
//
// Start with Objects.
package infra

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/runlevel/runlevel/internal/machines/contract"
	"github.com/runlevel/runlevel/internal/machines/patch"
	"github.com/runlevel/runlevel/internal/text/printable"
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
	// Failure is the message of the condition Ready while the infrastructure is not ready.
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

// A RetryError contains the pause before a retry.
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

// refusal returns the error of a request for infrastructure: an InvalidError, or one that may be temporary, such as an
// UnservedError.
func refusal(verb string, m Machine, err error) error {
	template := m.Template
	switch {
	case isUnserved(err):
		return &UnservedError{fmt.Sprintf("providerSpec.value: the cluster serves no kind %s of %s: install its "+
			"CustomResourceDefinition, "+
			"or write a kind that is served (kubectl api-resources)", template.GetKind(), template.GetAPIVersion())}
	// the template is not used by a delete
	case verb == deleting && isRefusedByAdmission(err) && !patch.IsLackOfRights(err):
		return fmt.Errorf("delete %s: the delete was refused: %w", describe(m), printable.Error(err))
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return invalid("the server refuses it: %s: correct it (kubectl explain %s.spec --api-version=%s)",
			RefusedFields(err), strings.ToLower(template.GetKind()), template.GetAPIVersion())
	case patch.IsLackOfRights(err):
		return fmt.Errorf("%s %s: grant the machine controller the right to %s that kind (docs/machines.md): %w",
			verb, describe(m), verb, printable.Error(err))
	}
	return fmt.Errorf("%s %s: %w", verb, describe(m), printable.Error(err))
}

// deleting is the verb of a request that deletes infrastructure.
const deleting = "delete"

// isRefusedByAdmission reports whether admission may have refused a request: webhooks return any of these codes.
func isRefusedByAdmission(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// isUnserved reports whether the cluster does not serve a kind, or not in the requested version.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) || isUnknownResource(err) }

// isUnknownResource reports whether the server does not know the path of a request, as after a definition was deleted.
// The server answers NotFound, as for a missing object.
func isUnknownResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// strictError precedes the unknown fields in the message of the server.
const strictError = "strict decoding error: "

// IsUnknownField reports whether the server refuses an object for a field that its kind does not have.
func IsUnknownField(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), strictError)
}

// RefusedFields returns the server's messages about the fields that it refuses.
func RefusedFields(err error) string {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) || refused.Status().Details == nil || len(refused.Status().Details.Causes) == 0 {
		text := printable.Line(err.Error())
		if _, fields, ok := strings.Cut(text, strictError); ok {
			return fields
		}
		return text
	}
	var causes []string
	for _, cause := range refused.Status().Details.Causes {
		text := cause.Message
		if cause.Field != "" && cause.Field != "<nil>" {
			text = cause.Field + ": " + text
		}
		causes = append(causes, printable.Line(text))
	}
	return strings.Join(causes, "; ")
}

// A Watcher starts watches of a controller for kinds that are known only when an object names one. It caches only
// metadata, in a cache of its own: if a kind can't be listed, for lack of permissions, only its watch fails, and the
// process becomes ready nevertheless.
type Watcher struct {
	// Controller gets the requests. It must be set before the controller starts.
	Controller controller.Controller

	cache   cache.Cache
	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool
}

// MapFunc returns the requests for a change of an object, which has only name, namespace and owner references.
type MapFunc = handler.TypedMapFunc[*metav1.PartialObjectMetadata, reconcile.Request]

// NewWatcher returns a Watcher for a controller of a manager.
func NewWatcher(mgr ctrl.Manager) (*Watcher, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform: trimMetadata,
	})
	if err == nil {
		err = mgr.Add(own)
	}
	if err != nil {
		return nil, fmt.Errorf("connect for watches of infrastructure: %w", err)
	}
	return &Watcher{cache: own, watched: map[schema.GroupVersionKind]bool{}}, nil
}

// Watch starts the watch of a kind unless it was started. It does not wait for the first list. Existing objects are
// reported as created.
func (w *Watcher) Watch(kind schema.GroupVersionKind, requests MapFunc,
	only ...predicate.TypedPredicate[*metav1.PartialObjectMetadata]) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched[kind] {
		return nil
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	if err := w.Controller.Watch(
		source.Kind(w.cache, object, handler.TypedEnqueueRequestsFromMapFunc(requests), only...),
	); err != nil {
		return fmt.Errorf("watch %s: %w", kind.Kind, err)
	}
	w.watched[kind] = true
	return nil
}

// trimMetadata removes the fields that a MapFunc does not use.
func trimMetadata(object any) (any, error) {
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		object.ManagedFields, object.Labels, object.Annotations = nil, nil, nil
	}
	return object, nil
}
