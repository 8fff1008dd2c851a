package infra

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/runlevel/runlevel/internal/machines/annotation"
)

// Objects reads, creates and deletes the infrastructure of machines: the object of the template's kind
// that has the machine's namespace and name. Each call can be repeated.
//
// For each kind that templates name, it needs the rights get, list, watch, create and delete.
type Objects struct {
	// Client reads from the server: with a cached answer, infrastructure could be created twice.
	Client client.Client
	// Watcher watches the kinds of templates. It may be nil.
	Watcher *Watcher
}

// NewObjects returns the Objects of a manager. The caller has to set the Controller of its
// Watcher.
func NewObjects(mgr ctrl.Manager) (*Objects, error) {
	direct, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("connect for infrastructure: %w", err)
	}
	watcher, err := NewWatcher(mgr)
	if err != nil {
		return nil, err
	}
	return &Objects{Client: direct, Watcher: watcher}, nil
}

// Get returns the state of a machine's infrastructure.
func (o *Objects) Get(ctx context.Context, m Machine) (Instance, error) {
	object, err := o.find(ctx, m)
	if err != nil {
		return Instance{}, err
	}
	return instanceOf(m, object)
}

// Create creates the infrastructure, unless it exists.
func (o *Objects) Create(ctx context.Context, m Machine) (Instance, error) {
	if _, err := o.begin(m); err != nil {
		return Instance{}, err
	}
	if err := checkFields(m.Template); err != nil {
		return Instance{}, err
	}
	object := m.object()
	err := o.Client.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsAlreadyExists(err) {
		return o.Get(ctx, m)
	}
	if err != nil {
		return Instance{}, refusal("create", m, err)
	}
	return instanceOf(m, object)
}

// Delete requests the deletion of the infrastructure, which is complete when Get finds none.
func (o *Objects) Delete(ctx context.Context, m Machine) (Instance, error) {
	object, err := o.find(ctx, m)
	if err != nil {
		return Instance{}, err
	}
	instance, err := instanceOf(m, object)
	if err != nil || !instance.Exists || instance.IsDeleting {
		return instance, err
	}
	uid := object.GetUID()
	err = o.Client.Delete(ctx, object, client.Preconditions{UID: &uid},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return Instance{}, refusal(deleting, m, err)
	}
	instance.IsDeleting = true
	return instance, nil
}

// find returns the infrastructure object of a machine, or nil if there is none. It needs only the kind of the template:
// the object exists, and can be deleted, even after an edit with which it could not be created.
func (o *Objects) find(ctx context.Context, m Machine) (*unstructured.Unstructured, error) {
	kind, err := o.begin(m)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	err = o.Client.Get(ctx, m.NamespacedName, object)
	if apierrors.IsNotFound(err) && !isUnknownResource(err) {
		return nil, nil
	}
	if err != nil {
		return nil, refusal("get", m, err)
	}
	return object, nil
}

// begin returns the kind that the template names, and watches it. Its version differs if the cluster does not serve the
// template's.
func (o *Objects) begin(m Machine) (schema.GroupVersionKind, error) {
	if err := checkKind(m.Template); err != nil {
		return schema.GroupVersionKind{}, err
	}
	kind := m.Template.GroupVersionKind()
	mapping, err := o.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if isUnserved(err) {
		mapping, err = o.Client.RESTMapper().RESTMapping(kind.GroupKind())
	}
	if err != nil {
		return schema.GroupVersionKind{}, refusal("get", m, err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return schema.GroupVersionKind{},
			invalid("kind %s has no namespaces: infrastructure is an object of the machine's namespace", kind.Kind)
	}
	return mapping.GroupVersionKind, o.Watcher.Watch(mapping.GroupVersionKind, sameName)
}

// sameName returns a request for the machine with the name of its infrastructure.
func sameName(_ context.Context, object *metav1.PartialObjectMetadata) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// object returns the desired object.
func (m Machine) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(m.Template.GroupVersionKind())
	object.SetNamespace(m.Namespace)
	object.SetName(m.Name)
	object.SetLabels(labels.Merge(m.Template.GetLabels(), m.Labels))
	owner := map[string]string{annotation.MachineUID: string(m.UID)}
	object.SetAnnotations(labels.Merge(m.Template.GetAnnotations(), owner))
	if spec, ok := m.Template.Object["spec"]; ok {
		object.Object["spec"] = spec
	}
	return object.DeepCopy()
}

// checkOwner returns an error if an object is not the infrastructure of a machine.
func checkOwner(m Machine, object *unstructured.Unstructured) error {
	const wayOut = "delete it, or have this machine take it: kubectl annotate --overwrite -n %s %s %s %s=%s"
	resource := object.GetKind() + "." + object.GroupVersionKind().Group
	advice := fmt.Sprintf(wayOut, m.Namespace, resource, m.Name, annotation.MachineUID, m.UID)
	switch owner := object.GetAnnotations()[annotation.MachineUID]; owner {
	case string(m.UID):
		return nil
	case "":
		return fmt.Errorf("%s does not belong to a machine: %s", describe(m), advice)
	default:
		return fmt.Errorf("%s belongs to another machine of that name, with the UID %s: %s", describe(m), owner, advice)
	}
}

// describe names the infrastructure object of a machine.
func describe(m Machine) string { return m.Template.GetKind() + " " + m.String() }
