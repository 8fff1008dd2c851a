package apply

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stalled says since when a rollout is given up, if it is. A Deployment says so until its
// controller has seen some progress, which may be long after it was changed for the better.
func stalled(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded" {
			since, _ := condition["lastTransitionTime"].(string)
			return since
		}
	}
	return ""
}

// forgive gives a rollout that was given up before this run its deadline anew: what it
// lacked may have come with this run, or by the hand of somebody.
func (f *follower) forgive(w *watched) {
	const usual = 600 // what Kubernetes takes where nothing is said
	seconds, found, _ := unstructured.NestedInt64(w.object.Object, "spec", "progressDeadlineSeconds")
	if !found {
		seconds = usual
	}
	given := w.stale
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		f.do(func() {
			if w.stale == given && w.object != nil && f.ctx.Err() == nil {
				w.stale = ""
				f.judge(w)
			}
		})
	})
	f.timers = append(f.timers, timer)
}

// withoutFields leaves out who owns which field, which nobody reads here. The object that
// is given stays whole.
func withoutFields(object *unstructured.Unstructured) *unstructured.Unstructured {
	metadata, isMapping := object.Object["metadata"].(map[string]any)
	if _, isThere := metadata["managedFields"]; !isMapping || !isThere {
		return object
	}
	lean := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	metadata = maps.Clone(metadata)
	delete(metadata, "managedFields")
	lean.Object["metadata"] = metadata
	return lean
}

// withoutSpec leaves out what is most of a large definition.
func withoutSpec(object *unstructured.Unstructured) *unstructured.Unstructured {
	lean := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	delete(lean.Object, "spec")
	return lean
}
