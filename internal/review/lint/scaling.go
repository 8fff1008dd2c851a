package lint

import (
	"cmp"
	"slices"
	"strconv"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// These rules are about budgets that hold all nodes, and autoscalers that scale nothing.

// runningRules are about objects that an API server accepts, but that do not work.
func runningRules() []Rule {
	return []Rule{
		{"unadmitted-pod", Error, nothing, checkUnadmittedPod},
		{"budget-without-eviction", Warning, nothing, checkBudgetWithoutEviction},
		{"unmeasured-autoscaler", Warning, nothing, checkUnmeasuredAutoscaler},
	}
}

func checkBudgetWithoutEviction(s *subject, r *reporter) {
	each(s, kinds.PodDisruptionBudget, func(m *manifest, budget *policyv1.PodDisruptionBudget) {
		const effect = "so no node that has one of its pods can be drained"
		pods, _, areAll := s.selected(m)
		least, scaler := s.leastReplicas(pods)
		switch spec := budget.Spec; {
		case spec.MaxUnavailable != nil && isShare(*spec.MaxUnavailable, 0, 0):
			r.field(m, []string{"spec", "maxUnavailable"}, "maxUnavailable %s allows no eviction, %s: allow 1",
				spec.MaxUnavailable, effect)
		case spec.MinAvailable != nil && isShare(*spec.MinAvailable, 100, -1):
			r.field(m, []string{"spec", "minAvailable"}, "minAvailable %s allows no eviction, %s: set "+
				"maxUnavailable: 1", spec.MinAvailable, effect)
		case spec.MinAvailable == nil || !areAll || least == 0 || leastOf(*spec.MinAvailable, least) < least:
		case scaler.groupKind() == kinds.HorizontalPodAutoscaler:
			r.field(m, []string{"spec", "minAvailable"}, "minAvailable %s allows no eviction at the minReplicas of %s "+
				"(%s), %s: set maxUnavailable: 1", spec.MinAvailable, scaler.id, scaler.place(), effect)
		default:
			r.field(m, []string{"spec", "minAvailable"}, "minAvailable %s allows no eviction with %s, %s: set "+
				"maxUnavailable: 1, or raise the replicas of %s (%s)", spec.MinAvailable,
				printable.Count(least, "replica"), effect, scaler.id, scaler.place())
		}
	})
}

// leastOf returns the number of pods that must be available of all; a share is rounded up, as the controller does.
func leastOf(bound intstr.IntOrString, all int) int {
	least, err := intstr.GetScaledValueFromIntOrPercent(&bound, all, true)
	if err != nil {
		return 0
	}
	return least
}

// isShare reports whether a bound of a budget is a percentage or a number of pods.
func isShare(bound intstr.IntOrString, percent, pods int) bool {
	if bound.Type == intstr.String {
		return bound.StrVal == strconv.Itoa(percent)+"%"
	}
	return int(bound.IntVal) == pods
}

// leastReplicas returns the number of pods that some workloads have at least, and the object that sets it; 0 if it is
// not known, as for a DaemonSet, which has as many as there are nodes.
func (s *subject) leastReplicas(pods []podSet) (total int, by *manifest) {
	for _, set := range pods {
		setter := cmp.Or(s.autoscalerOf(set.by.id), set.by)
		isOther := setter != set.by && setter.groupKind() != kinds.HorizontalPodAutoscaler
		if isOther || !set.restarts() || set.by.groupKind() == kinds.DaemonSet {
			return 0, nil
		}
		total, by = total+int(s.leastPods(set.by)), cmp.Or(by, setter)
	}
	return total, by
}

// checkUnmeasuredAutoscaler looks for autoscalers by utilization, a share of what pods request, of pods without
// requests.
func checkUnmeasuredAutoscaler(s *subject, r *reporter) {
	for _, m := range s.byKind[kinds.HorizontalPodAutoscaler] {
		target, isKnown := kinds.ScaleTarget(m.Object())
		if m.isTombstone || !isKnown {
			continue
		}
		for _, pods := range s.pods()[m.id.Namespace] {
			if pods.by.id != target || !s.shareCluster(m, pods.by) {
				continue
			}
			for _, metric := range m.utilizations() {
				if name := pods.withoutRequest(metric); name != "" &&
					!s.hasDefaultRequest(m.id.Namespace, metric.resource) {
					r.field(m, metric.path, "the container %s of %s (%s:%d) requests no %s, of which this is a "+
						"share: nothing is scaled",
						name, pods.by.id, pods.by.Path, pods.by.Line, metric.resource)
				}
			}
		}
	}
}

// hasDefaultRequest reports whether a LimitRange of the payload adds requests of a resource to the containers of a
// namespace.
func (s *subject) hasDefaultRequest(namespace, resource string) bool {
	return slices.ContainsFunc(s.byKind[kinds.LimitRange], func(m *manifest) bool {
		limits, _ := m.get("spec", "limits").([]any)
		return m.id.Namespace == namespace && !m.isTombstone && slices.ContainsFunc(limits, func(limit any) bool {
			// The API server takes the default request from the first of these fields that has a value.
			return slices.ContainsFunc([]string{"defaultRequest", "default", "max", "min"}, func(field string) bool {
				return fieldAt(limit, []string{field, resource}) != nil
			})
		})
	})
}

// A utilization is a metric of an autoscaler, relative to the requests of containers.
type utilization struct {
	path      []string // path to the name of the resource
	resource  string
	container string // "" if it is of all
}

// utilizations returns the metrics of an autoscaler that are shares of requests.
func (m *manifest) utilizations() (found []utilization) {
	if m.get("spec", "targetCPUUtilizationPercentage") != nil { // field of autoscaling/v1
		found = append(found, utilization{path: []string{"spec", "targetCPUUtilizationPercentage"}, resource: "cpu"})
	}
	metrics, _ := m.get("spec", "metrics").([]any)
	for i := range metrics {
		for _, key := range []string{"resource", "containerResource"} {
			path := []string{"spec", "metrics", strconv.Itoa(i), key}
			metric, _ := fieldAt(m.Object().Object, path).(map[string]any)
			resource, _ := metric["name"].(string)
			container, _ := metric["container"].(string)
			if fieldAt(metric, []string{"target", "type"}) == "Utilization" {
				found = append(found, utilization{append(path, "name"), resource, container})
			}
		}
	}
	return found
}

// withoutRequest returns a container without a request of a metric's resource; "" if all have one. A limit is a
// request, too.
func (p podSet) withoutRequest(metric utilization) string {
	containers, _ := p.containers("containers")
	for _, container := range containers {
		name, _ := container["name"].(string)
		if metric.container != "" && metric.container != name {
			continue
		}
		if fieldAt(container, []string{"resources", "requests", metric.resource}) == nil &&
			fieldAt(container, []string{"resources", "limits", metric.resource}) == nil {
			return name
		}
	}
	return ""
}
