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

// restore makes the objects of a snapshot, with the managers that their fields had. What could not be made is reported,
// and so are the webhooks of the cluster, which do not run here.
func (r *rehearsal) restore(ctx context.Context, source *snapshot.Snapshot) error {
	r.Progress(fmt.Sprintf("restore %s: %s", strings.TrimSpace(source.Release+" "+source.Version),
		printable.Count(len(source.Objects), "object")))
	for _, saved := range source.Objects {
		if err := r.restoreObject(ctx, saved.DeepCopy()); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.found.addForObject(kinds.IDOf(saved),
				observed(lint.RehearsalNotTried, "the rehearsal could not restore it: %s", printable.Line(err.Error())))
		}
	}
	if slices.ContainsFunc(source.Objects, isPolicy) && !object.Pause(ctx, policiesActive) {
		return context.Cause(ctx)
	}
	r.awaitRestored(ctx, source)
	for _, webhook := range source.Webhooks {
		observation := observed(lint.RehearsalNotTried,
			"webhook %s of the cluster can't run here, and is called for %s: \"runlevel gate\" asks it",
			webhook.Name, strings.Join(webhook.Resources, ", "))
		observation.Object = webhook.Configuration
		r.found.add(observation)
	}
	for _, unread := range source.Unread {
		r.found.add(observed(lint.RehearsalNotTried, "the snapshot lacks what could not be read: %s", unread))
	}
	return nil
}

// policiesActive is how long it takes until an admission policy is active: the API server reads them once a second.
const policiesActive = 2500 * time.Millisecond

func isPolicy(object *unstructured.Unstructured) bool {
	return strings.HasSuffix(object.GetKind(), "AdmissionPolicyBinding")
}

// awaitRestored waits until the pods of restored workloads exist, and budgets count them.
func (r *rehearsal) awaitRestored(ctx context.Context, source *snapshot.Snapshot) {
	waiting := slices.Clone(source.Objects)
	r.await(ctx, standInEvery, func(ctx context.Context) bool {
		waiting = slices.DeleteFunc(waiting, func(object *unstructured.Unstructured) bool {
			return r.isSettled(ctx, object)
		})
		return len(waiting) == 0
	})
}

// isSettled reports whether controllers have done their part for a restored object.
func (r *rehearsal) isSettled(ctx context.Context, object *unstructured.Unstructured) bool {
	gvk := object.GroupVersionKind()
	isBudget := gvk.Kind == "PodDisruptionBudget"
	if path := kinds.PodSpec(gvk.GroupKind()); !isBudget && (len(path) < 2 || gvk.Group == "batch") {
		return true
	}
	live, err := r.cluster.Get(ctx, kinds.IDOf(object))
	if err != nil {
		return apierrors.IsNotFound(err) // it could not be restored
	}
	generation, _, _ := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	verdict := ready.Check(live, ready.Full, ready.Related{})
	return generation >= live.GetGeneration() && (isBudget || verdict.State == ready.Ready)
}

// restoreObject makes an object, and then sets its managers, whom a create does not keep, and its status.
func (r *rehearsal) restoreObject(ctx context.Context, object *unstructured.Unstructured) error {
	if !adaptObject(object) {
		return nil
	}
	held := slices.DeleteFunc(object.GetFinalizers(), func(name string) bool {
		return strings.HasPrefix(name, "kubernetes.io/")
	})
	object.SetFinalizers(nil) // Kubernetes sets its own again
	if len(held) > 0 {
		r.found.addForObject(kinds.IDOf(object), observed(lint.RehearsalNotTried,
			"its finalizers are left out, since their controllers do not run here: %s", strings.Join(held, ", ")))
	}
	managers, status := object.GetManagedFields(), object.Object["status"]
	object.SetManagedFields(nil)
	unstructured.RemoveNestedField(object.Object, "status")
	resource, err := r.create(ctx, object)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	api := r.cluster.In(resource, object.GetNamespace())
	return cluster.RetryOnConflict(retry.DefaultRetry, func() error { // controllers write it, too
		made, err := api.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		restoreFields(made, object)
		made.SetManagedFields(managers)
		if made, err = api.Update(ctx, made, metav1.UpdateOptions{}); err != nil || !restoreStatus(made, status) {
			return err
		}
		if _, err = api.UpdateStatus(ctx, made, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
			_, err = api.Update(ctx, made, metav1.UpdateOptions{}) // its status is a field like others
		}
		return err
	})
}

// restoreFields gives an object that every cluster has, such as a Namespace, the labels and annotations of the
// snapshot.
func restoreFields(made, object *unstructured.Unstructured) {
	labels, annotations := made.GetLabels(), made.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(labels, object.GetLabels())
	maps.Copy(annotations, object.GetAnnotations())
	made.SetLabels(labels)
	made.SetAnnotations(annotations)
}

// restoreStatus sets the status of an object whose controller does not run here, and the versions in which a definition
// has stored objects. It reports whether there is one to set.
func restoreStatus(made *unstructured.Unstructured, status any) bool {
	kind := made.GroupVersionKind().GroupKind()
	before, _ := status.(map[string]any)
	switch {
	case len(before) == 0:
		return false
	case kind == kinds.CustomResourceDefinition:
		return unstructured.SetNestedField(made.Object, before["storedVersions"], "status", "storedVersions") == nil
	case kinds.ScopeOf(kind) == kinds.Unknown:
		made.Object["status"] = before
		return true
	default:
		return false
	}
}

// create creates an object, also one whose definition was created just now.
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

// adaptObject changes what could not work in a rehearsal of an object that was in a cluster. It reports whether it is
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
