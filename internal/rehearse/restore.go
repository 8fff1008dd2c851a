package rehearse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/session/snapshot"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// restore creates the objects of a snapshot, with the managers of their fields. It reports the objects that it could
// not create, and the webhooks of the cluster, which do not run in a rehearsal.
func (r *rehearsal) restore(ctx context.Context, source *snapshot.Snapshot) error {
	r.Progress(fmt.Sprintf("restore %s: %s", strings.TrimSpace(source.Release+" "+source.Version),
		printable.Count(len(source.Objects), "object")))
	for _, saved := range source.Objects {
		if err := r.restoreObject(ctx, saved.DeepCopy()); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.findings.addForObject(kinds.IDOf(saved),
				newObservation(lint.RehearsalNotTried, "the rehearsal could not restore it: %s",
					printable.Line(err.Error())))
		}
	}
	if slices.ContainsFunc(source.Objects, isPolicy) && !object.Pause(ctx, policyDelay) {
		return context.Cause(ctx)
	}
	r.awaitRestored(ctx, source)
	for _, webhook := range source.Webhooks {
		observation := newObservation(lint.RehearsalNotTried,
			"webhook %s of the cluster can't run here, and is called for %s: \"runlevel gate\" asks it",
			webhook.Name, strings.Join(webhook.Resources, ", "))
		observation.Object = webhook.Configuration
		r.findings.add(observation)
	}
	for _, unread := range source.Unread {
		r.findings.add(newObservation(lint.RehearsalNotTried, "the snapshot lacks what could not be read: %s", unread))
	}
	return nil
}

// policyDelay is longer than the API server takes to activate an admission policy: it reads them once a second.
const policyDelay = 2500 * time.Millisecond

func isPolicy(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "AdmissionPolicyBinding")
}

// awaitRestored waits until the restored workloads have their pods, and the budgets count them.
func (r *rehearsal) awaitRestored(ctx context.Context, source *snapshot.Snapshot) {
	waiting := slices.Clone(source.Objects)
	r.await(ctx, standInEvery, func(ctx context.Context) bool {
		waiting = slices.DeleteFunc(waiting, func(object *unstructured.Unstructured) bool {
			return r.isSettled(ctx, object)
		})
		return len(waiting) == 0
	})
}

// isSettled reports whether controllers have created the pods of a restored object, and set its status.
func (r *rehearsal) isSettled(ctx context.Context, object *unstructured.Unstructured) bool {
	gvk := object.GroupVersionKind()
	isBudget := gvk.Kind == "PodDisruptionBudget"
	if path := kinds.PodSpec(gvk.GroupKind()); !isBudget && (len(path) < 2 || gvk.Group == "batch") {
		return true
	}
	live, err := r.cluster.Get(ctx, kinds.IDOf(object))
	if err != nil {
		return apierrors.IsNotFound(err) // the object could not be restored
	}
	generation, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	verdict := ready.Check(live, ready.Full, ready.Related{})
	return generation >= live.GetGeneration() && (isBudget || verdict.State == ready.Ready)
}

// restoreObject creates an object, and then sets its managers and its status, which a create does not set.
func (r *rehearsal) restoreObject(ctx context.Context, object *unstructured.Unstructured) error {
	if !adaptObject(object) {
		return nil
	}
	removed := slices.DeleteFunc(object.GetFinalizers(), func(name string) bool {
		return strings.HasPrefix(name, "kubernetes.io/")
	})
	object.SetFinalizers(nil) // Kubernetes adds its own finalizers again
	if len(removed) > 0 {
		r.findings.addForObject(kinds.IDOf(object), newObservation(lint.RehearsalNotTried,
			"its finalizers are left out, since their controllers do not run here: %s", strings.Join(removed, ", ")))
	}
	managers, status := object.GetManagedFields(), object.Object["status"]
	object.SetManagedFields(nil)
	unstructured.RemoveNestedField(object.Object, "status")
	resource, err := r.create(ctx, object)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	api := r.cluster.In(resource, object.GetNamespace())
	return cluster.RetryOnConflict(retry.DefaultRetry, func() error { // controllers write the object, too
		created, err := api.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		restoreFields(created, object)
		created.SetManagedFields(managers)
		if created, err = api.Update(ctx, created, metav1.UpdateOptions{}); err != nil ||
			!restoreStatus(created, status) {
			return err
		}
		if _, err = api.UpdateStatus(ctx, created, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
			_, err = api.Update(ctx, created, metav1.UpdateOptions{}) // the kind has no status subresource
		}
		return err
	})
}

// restoreFields adds the labels and annotations of the snapshot to an object that every cluster has, such as a
// Namespace.
func restoreFields(created, object *unstructured.Unstructured) {
	labels, annotations := created.GetLabels(), created.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, object.GetLabels())
	maps.Copy(annotations, object.GetAnnotations())
	created.SetLabels(labels)
	created.SetAnnotations(annotations)
}

// restoreStatus sets the status of an object whose controller does not run here, and the versions in which a definition
// has stored objects. It returns false if nothing is to be set.
func restoreStatus(created *unstructured.Unstructured, status any) bool {
	kind := created.GroupVersionKind().GroupKind()
	before, _ := status.(map[string]any)
	switch {
	case len(before) == 0:
		return false
	case kind == kinds.CustomResourceDefinition:
		return unstructured.SetNestedField(created.Object, before["storedVersions"], "status", "storedVersions") == nil
	case kinds.ScopeOf(kind) == kinds.Unknown:
		created.Object["status"] = before
		return true
	default:
		return false
	}
}

// create creates an object. If its definition was just created, it waits until the API server serves the kind.
func (r *rehearsal) create(ctx context.Context,
	object *unstructured.Unstructured) (resource cluster.Resource, err error) {
	r.await(ctx, standInEvery, func(ctx context.Context) bool {
		if resource, err = r.cluster.Find(ctx, object.GroupVersionKind()); err != nil {
			r.cluster.Refresh()
		} else {
			_, err = r.cluster.In(resource, object.GetNamespace()).Create(ctx, object,
				metav1.CreateOptions{FieldManager: "rehearsal"})
		}
		return err == nil || apierrors.IsInvalid(err) || apierrors.IsAlreadyExists(err) || apierrors.IsBadRequest(err)
	})
	return resource, err
}

// adaptObject changes an object of a cluster that could not work in a rehearsal. It returns false if the object is not
// to be restored.
func adaptObject(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind().GroupKind()
	switch {
	case kind == kinds.APIService && isServedByPods(object):
		return false
	case kinds.HasWebhooks(kind):
		skipWebhooks(object)
	case kind == kinds.CustomResourceDefinition:
		skipConversion(object)
	}
	return true
}
