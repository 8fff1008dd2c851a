package apply

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/pkg/ownership"
	"github.com/runlevel/runlevel/pkg/payload"
)

// findScaled finds out which objects autoscalers scale, those of the cluster and those that
// the payload brings. Nobody is asked if it does not matter for any.
func (r *run) findScaled(manifests []*payload.Manifest) (ownership.Scaled, error) {
	var concerned []*payload.Manifest
	var namespaces []string
	for _, m := range manifests {
		head, _ := r.before.Find(m.ID())
		if m.IsTombstone() || !ownership.Concerns(m.Object(), head.Metadata()) {
			continue
		}
		concerned = append(concerned, m)
		if namespace := m.ID().Namespace; !slices.Contains(namespaces, namespace) {
			namespaces = append(namespaces, namespace)
		}
	}
	if len(concerned) == 0 {
		return nil, nil
	}
	scaled, err := ownership.FindScaled(r.requests, r.cluster, namespaces)
	switch {
	case apierrors.IsForbidden(err):
		for _, m := range concerned {
			r.warn(m, []string{"nobody may list HorizontalPodAutoscalers here, so the replicas of the manifest count: allow this user to list horizontalpodautoscalers.autoscaling"})
		}
		scaled = ownership.Scaled{}
	case err != nil:
		return nil, err
	}
	for _, m := range manifests {
		if m.GroupVersionKind().GroupKind() != ownership.AutoscalerKind {
			continue
		}
		if !m.IsTombstone() {
			scaled.Add(m.Object())
		}
	}
	return scaled, nil
}
