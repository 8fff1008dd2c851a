package lint

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for name, sets := range s.pods() {
		for _, namespace := range s.namespaces(name) {
			if namespace.isTombstone {
				continue
			}
			level, isEnforced := enforcedLevel(namespace)
			for _, pods := range sets {
				spec := pods.typed()
				if !isEnforced || spec == nil || !s.shareCluster(pods.by, namespace) {
					continue
				}
				found := policy.AggregateCheckResults(checks.EvaluatePod(level, pods.metadata(), spec))
				if !found.Allowed {
					r.field(pods.by, pods.path,
						"the Namespace %s (%s:%d) enforces the pod security level %s, which does not allow: %s",
						name, namespace.Path, namespace.Line, level.Level, found.ForbiddenDetail())
				}
			}
		}
	}
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
	annotations, _ := p.by.get(
		append(p.path[:len(p.path)-1:len(p.path)-1], "metadata", "annotations")...,
	).(map[string]any)
	found := &metav1.ObjectMeta{Labels: p.labels, Annotations: map[string]string{}}
	for key, value := range annotations {
		found.Annotations[key], _ = value.(string)
	}
	return found
}
