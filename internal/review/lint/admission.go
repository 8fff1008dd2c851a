package lint

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// This rule is about pods that the pod security policy of their Namespace refuses, by the API server's own code.

// evaluator contains the checks of all levels and versions.
var evaluator = sync.OnceValues(func() (policy.Evaluator, error) {
	return policy.NewEvaluator(policy.DefaultChecks(), nil)
})

func checkUnadmittedPod(s *subject, r *reporter) {
	checks, err := evaluator()
	if err != nil { // error in the library's own checks
		panic(err)
	}
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		for _, namespace := range s.namespaces(pods.by.id.Namespace) {
			level, isEnforced := enforcedLevel(namespace)
			if !isEnforced || namespace.isTombstone || !s.shareCluster(pods.by, namespace) {
				continue
			}
			found := policy.AggregateCheckResults(checks.EvaluatePod(level, pods.metadata(), spec))
			if !found.Allowed {
				r.field(pods.by, pods.path, "the %s enforces the pod security level %s, which does not allow: %s",
					namespace.named(), level.Level, found.ForbiddenDetail())
			}
		}
	})
}

// enforcedLevel returns the pod security level that a Namespace enforces by its labels.
func enforcedLevel(namespace *manifest) (level api.LevelVersion, isEnforced bool) {
	labels := namespace.Object().GetLabels()
	if labels[api.EnforceLevelLabel] == "" {
		return level, false
	}
	all := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	found, problems := api.PolicyToEvaluate(labels, api.Policy{Enforce: all, Audit: all, Warn: all})
	return found.Enforce, len(problems) == 0
}

// metadata returns the metadata of pods.
func (p podSet) metadata() *metav1.ObjectMeta {
	path := append(slices.Clone(p.path[:len(p.path)-1]), "metadata", "annotations")
	annotations, _, _ := unstructured.NestedStringMap(p.by.Object().Object, path...)
	return &metav1.ObjectMeta{Labels: p.labels, Annotations: annotations}
}
