package ready

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// WithoutProbe returns the containers of a workload that are ready as soon as they have started: they have neither a
// readiness probe nor a startup probe. It returns none if the workload sets minReadySeconds, or has the annotation
// runlevel.dev/ready.
func WithoutProbe(manifest *unstructured.Unstructured) []string {
	o := live(manifest.Object)
	_, isMarked := manifest.GetAnnotations()[Annotation]
	kind := manifest.GroupVersionKind().GroupKind()
	runsForever := kinds.IsWorkload(kind) && kind.Group == kinds.Deployment.Group
	if !runsForever || isMarked || o.number(0, "spec", "minReadySeconds") > 0 ||
		o.wantedReplicas() == 0 {
		return nil
	}
	var names []string
	containers, _, _ := unstructured.NestedSlice(manifest.Object, "spec", "template", "spec", "containers")
	for _, container := range containers {
		if fields, _ := container.(map[string]any); fields["readinessProbe"] == nil && fields["startupProbe"] == nil {
			name, _ := fields["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// AvailableSince returns since when a Deployment has all of its replicas, according to its conditions; zero if unknown.
func AvailableSince(object *unstructured.Unstructured) time.Time {
	var since time.Time
	if object.GroupVersionKind().GroupKind() != kinds.Deployment {
		return since
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		for _, field := range []string{"lastTransitionTime", "lastUpdateTime"} {
			text, _ := condition[field].(string)
			if when, err := time.Parse(time.RFC3339, text); err == nil && when.After(since) {
				since = when
			}
		}
	}
	return since
}
