package apply

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/inventory"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// jobKind is that of objects which run once.
var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}

// clusterRoleKind is that of objects whose rules a controller may gather.
var clusterRoleKind = schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}

// step does one step, and says whether what comes after it may go on.
func (r *run) step(ctx context.Context, i int) bool {
	manifest := r.order.steps[i].Manifest
	if manifest.IsTombstone() {
		return r.retry(ctx, i, func() (Change, error) { return r.bury(manifest) })
	}
	if r.await(ctx, r.order.needs[i]) != nil {
		return false // the report says which it was
	}
	return r.retry(ctx, i, func() (Change, error) { return r.put(manifest) })
}

// put makes the object of a manifest what the manifest says.
func (r *run) put(m *payload.Manifest) (Change, error) {
	resource, err := r.find(m.GroupVersionKind())
	if err != nil {
		return Change{}, err
	}
	if resource.Namespaced && m.Object().GetNamespace() == "" {
		return Change{}, refusal{ResourceInvalid, "it is in no namespace: write metadata.namespace"}
	}
	head, isThere, err := r.head(resource, m.ID())
	if err != nil {
		return Change{}, err
	}
	if owner, isOthers := head.Owner(r.options.Release); isOthers {
		return Change{}, refusal{ResourceConflict, "it is of release " + owner + ": only one release may have an object"}
	}
	object := r.labelled(m)
	r.follow.expect(m, resource)
	if m.GroupVersionKind().GroupKind() == jobKind && r.options.Journal.hasFinished(m) {
		if isGone, err := r.isAbsent(resource, m.ID()); err != nil || isGone {
			return Change{Action: Kept, Message: "it has finished before, and is not run again"}, err
		}
	}
	if isCreateOnly(m) {
		return r.create(resource, m, object, isThere)
	}
	began := r.cluster.Now()
	applied, err := r.apply(resource, m, object)
	if fixed := immutableFields(err); len(fixed) > 0 {
		return r.recreate(resource, m, fixed)
	}
	if err != nil {
		return Change{}, err
	}
	if applied.Object.GetDeletionTimestamp() != nil {
		return Change{}, r.leaving(m, applied.Object.GetUID())
	}
	r.follow.add(m, applied.Object)
	return Change{Action: action(head, isThere, resource, applied, began), UID: applied.Object.GetUID()}, nil
}

// find says where the object is. Kinds that came up since the last look are looked for
// once more.
func (r *run) find(kind schema.GroupVersionKind) (cluster.Resource, error) {
	resource, err := r.cluster.Find(r.requests, kind)
	if errors.Is(err, cluster.ErrNotServed) && r.hasWritten(kind.Group) || errors.As(err, new(*cluster.UnknownKind)) {
		r.cluster.Refresh()
		return r.cluster.Find(r.requests, kind)
	}
	return resource, err
}

// head is what is known of an object from before. It is only asked for where the kind
// could not be listed, or where an object without our label matters.
func (r *run) head(resource cluster.Resource, id kinds.ID) (inventory.Head, bool, error) {
	if !resource.Namespaced {
		id.Namespace = "" // which manifests may say all the same
	}
	if head, found := r.before.Find(id); found || r.before.Unlisted(id.GroupKind()) == nil {
		return head, found, nil
	}
	object, err := r.cluster.Head(r.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return inventory.Head{}, false, nil
	}
	if err != nil {
		return inventory.Head{}, false, err
	}
	return inventory.HeadOf(resource, object), true, nil
}

// isAbsent asks whether an object is not there by now.
func (r *run) isAbsent(resource cluster.Resource, id kinds.ID) (bool, error) {
	_, err := r.cluster.Head(r.requests, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// ofTheServer are the fields of metadata that only the server says. They are in a manifest
// that was copied from a cluster, and an object made anew would never be what they say.
var ofTheServer = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"}

// labelled is the object of a manifest with the label of its release, and with nothing
// that is not for a manifest to say.
func (r *run) labelled(m *payload.Manifest) *unstructured.Unstructured {
	object := m.Object().DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[inventory.Label] = r.options.Release
	object.SetLabels(labels)
	for _, field := range ofTheServer {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if isAggregated(object) {
		delete(object.Object, "rules")
	}
	return object
}

// isAggregated says whether the rules of a ClusterRole are gathered from others. They are
// the controller's then: to apply ours would take away every right of it until the
// controller has gathered them again. Manifests have an empty list there all the same.
func isAggregated(object *unstructured.Unstructured) bool {
	rule, _, _ := unstructured.NestedMap(object.Object, "aggregationRule")
	return object.GroupVersionKind().GroupKind() == clusterRoleKind && len(rule) > 0
}

// isCreateOnly says whether an object is only ever made. The value may be in any case, as
// upstream has it.
func isCreateOnly(m *payload.Manifest) bool {
	return strings.EqualFold(m.Object().GetAnnotations()[CreateOnlyAnnotation], "true")
}

// create makes an object, if it is not there. One that was there when the run began may
// have gone since, and another one may have come.
func (r *run) create(resource cluster.Resource, m *payload.Manifest, object *unstructured.Unstructured, isThere bool) (Change, error) {
	if !isThere {
		made, err := r.cluster.Create(r.requests, resource, object)
		r.warn(m, maskedWarnings(m, made.Warnings))
		if err == nil {
			r.follow.add(m, made.Object)
			return Change{Action: Created, UID: made.Object.GetUID()}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return Change{}, err
		}
	}
	live, err := r.cluster.In(resource, object.GetNamespace()).Get(r.requests, object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && isThere:
		return r.create(resource, m, object, false)
	case apierrors.IsNotFound(err):
		return Change{}, leaving{"it was in the way when it was to be made, and is gone: it can be made now"}
	case err != nil:
		return Change{}, err
	case live.GetDeletionTimestamp() != nil:
		return Change{}, r.leaving(m, live.GetUID())
	}
	r.follow.add(m, live)
	return Change{Action: Kept, UID: live.GetUID(), Message: "it is create-only, and was there"}, nil
}

// action says what an apply has done that was begun at a time, by the server's clock.
func action(before inventory.Head, isThere bool, resource cluster.Resource, applied cluster.Applied, began time.Time) Action {
	if applied.Created {
		if isThere { // when the run began
			return Recreated
		}
		return Created
	}
	after := inventory.HeadOf(resource, applied.Object)
	if !isThere || before.UID != after.UID {
		return Configured
	}
	if before.ResourceVersion == after.ResourceVersion {
		return Unchanged
	}
	// Somebody has written since the look: we, or another one its status, for example. An
	// apply that changes anything renews our entry, to the second: where the entry was that
	// young already, only the generation may tell.
	hasGeneration := after.Generation != 0 && before.Generation == after.Generation
	if before.Entry.Same(after.Entry) && (hasGeneration || began.Sub(after.Entry.Since) > entryDoubt) {
		return Unchanged
	}
	return Configured
}

// entryDoubt is how old an entry must be to tell whether it was renewed: it has whole
// seconds, and what we know of the server's clock may be two seconds off.
const entryDoubt = 4 * time.Second
