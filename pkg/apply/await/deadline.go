package await

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stalledSince returns since when a rollout is given up, if it is. A Deployment says so until its
// controller has seen some progress, which may be long after it was changed for the better.
func stalledSince(object *unstructured.Unstructured) string {
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

// extendDeadline gives a rollout that was given up before this run its deadline anew: what it
// lacked may have come with this run, or by the hand of somebody.
func (t *Tracker) extendDeadline(o *tracked, object *unstructured.Unstructured) {
	const usual = 600 // what Kubernetes takes where nothing is said
	seconds, found, _ := unstructured.NestedInt64(object.Object, "spec", "progressDeadlineSeconds")
	if !found {
		seconds = usual
	}
	given := o.stalled
	timer := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		t.do(func() {
			if o.stalled == given && o.live != nil && t.ctx.Err() == nil {
				o.stalled = ""
				t.judge(o)
			}
		})
	})
	t.timers = append(t.timers, timer)
}
