package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about quantities that can't be meant or that a namespace does not allow, and about budgets and
// autoscalers of the same pods.

// The quantities beyond which a unit is probably missing or wrong.
var (
	minBytes = resource.MustParse("1Mi")
	maxCPU   = resource.MustParse("100")
)

func checkWrongQuantity(s *subject, r *reporter) {
	if s.previous != nil {
		s.podPairs(func(old, now podSet) {
			containerPairs(old, now, func(before, c podContainer) { checkRequestGrown(old.by, before, c, now, r) })
			checkDirectoryShrunk(old, now, r)
		})
	}
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		for _, c := range pods.typedContainers() {
			limits, requests := c.Resources.Limits, c.Resources.Requests
			checkUnits(pods, c.field+"|resources|limits", limits, requests.Cpu().IsZero(), r) // they are the requests
			checkUnits(pods, c.field+"|resources|requests", requests, true, r)
		}
		for i, volume := range spec.Volumes {
			disk, field := volume.EmptyDir, fmt.Sprintf("volumes|%d|emptyDir|sizeLimit", i)
			switch {
			case disk == nil || disk.SizeLimit == nil || disk.SizeLimit.IsZero():
			case disk.SizeLimit.Cmp(minBytes) < 0:
				pods.field(r, field, "sizeLimit %s is in bytes, and pods that write more are evicted: write a unit, "+
					"such as Mi", disk.SizeLimit)
			case disk.Medium == corev1.StorageMediumMemory:
				checkMemoryVolume(pods, volume, field, r)
			}
		}
	})
}

// checkUnits looks for bytes that are too few, and cores that are too many, in the limits or requests of a container.
func checkUnits(pods podSet, field string, quantities corev1.ResourceList, areRequests bool, r *reporter) {
	list := field[strings.LastIndex(field, "|")+1:]
	for _, name := range []corev1.ResourceName{"memory", "ephemeral-storage"} {
		if bytes := quantities[name]; !bytes.IsZero() && bytes.Cmp(minBytes) < 0 {
			pods.field(r, field+"|"+string(name), "%s.%s %s is in bytes, and no program needs so few: write a unit, "+
				"such as Mi", list, name, &bytes)
		}
	}
	if cpu := quantities.Cpu(); areRequests && cpu.Cmp(maxCPU) >= 0 {
		pods.field(r, field+"|cpu", "%s.cpu %d is in cores, and few nodes have so many: write %dm for thousandths",
			list, cpu.Value(), cpu.Value())
	}
}

// maxGrowth is the factor from which a quantity that changes in one update is taken for one with another unit.
const maxGrowth = 40

// checkDirectoryShrunk looks for sizes of volumes that shrink as by another unit.
func checkDirectoryShrunk(old, now podSet, r *reporter) {
	for i, volume := range now.typed().Volumes {
		for _, before := range old.typed().Volumes {
			if before.Name != volume.Name || before.EmptyDir == nil || before.EmptyDir.SizeLimit == nil ||
				volume.EmptyDir == nil || volume.EmptyDir.SizeLimit == nil {
				continue
			}
			had, has := before.EmptyDir.SizeLimit, volume.EmptyDir.SizeLimit
			if has.Cmp(minBytes) >= 0 && has.AsApproximateFloat64()*maxGrowth < had.AsApproximateFloat64() {
				field := fmt.Sprintf("volumes|%d|emptyDir|sizeLimit", i)
				now.field(r, field, "sizeLimit %s is less than a %dth of the %s of %s, and pods that write more are "+
					"evicted: check its unit", has, maxGrowth, had, old.by.place())
			}
		}
	}
}

// checkRequestGrown looks for requests that grow as by another unit.
func checkRequestGrown(old *manifest, before, c podContainer, pods podSet, r *reporter) {
	for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage"} {
		had, has := before.Resources.Requests[name], c.Resources.Requests[name]
		if had.IsZero() || has.AsApproximateFloat64() <= maxGrowth*had.AsApproximateFloat64() ||
			name == "cpu" && has.Cmp(maxCPU) >= 0 { // reported as cores
			continue
		}
		pods.field(r, c.field+"|resources|requests|"+string(name), "requests.%s %s is more than %d times the %s of "+
			"%s, so few nodes have room for it: check its unit", name, &has, maxGrowth, &had, old.place())
	}
}

// checkMemoryVolume looks for volumes in memory above the limit of a container.
func checkMemoryVolume(pods podSet, volume corev1.Volume, field string, r *reporter) {
	for _, container := range pods.typed().Containers {
		limit := container.Resources.Limits.Memory()
		if !limit.IsZero() && limit.Cmp(*volume.EmptyDir.SizeLimit) < 0 && slices.ContainsFunc(container.VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.Name == volume.Name }) {
			pods.field(r, field, "sizeLimit %s of a volume in memory is more than the limits.memory %s of the "+
				"container %s, which is killed before the volume is full: lower it", volume.EmptyDir.SizeLimit, limit,
				container.Name)
		}
	}
}

func checkOverLimit(s *subject, r *reporter) {
	each(s, kinds.LimitRange, func(m *manifest, limits *corev1.LimitRange) {
		for _, pods := range s.pods()[m.id.Namespace] {
			if spec := pods.typed(); spec != nil && s.shareCluster(m, pods.by) {
				for i := range spec.Containers {
					checkRange(pods, i, m, limits, r)
				}
			}
		}
	})
	each(s, kinds.ResourceQuota, func(m *manifest, quota *corev1.ResourceQuota) {
		if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
			s.checkQuota(m, key, quota.Spec.Hard[key], r)
		}
	})
}

// quantityOf returns the limit or the request of a container, with the default of a LimitRange; nil if it has none.
func quantityOf(container corev1.Container, name corev1.ResourceName, isLimit bool, limits *corev1.LimitRange,
) *resource.Quantity {
	lists := []corev1.ResourceList{container.Resources.Limits}
	if !isLimit {
		lists = slices.Insert(lists, 0, container.Resources.Requests)
	}
	for _, item := range limits.Spec.Limits { // in the order in which the API server looks for a default
		switch {
		case item.Type != corev1.LimitTypeContainer:
		case isLimit:
			lists = append(lists, item.Default, item.Max)
		default:
			lists = append(lists, item.DefaultRequest, item.Default, item.Max, item.Min)
		}
	}
	for _, list := range lists {
		if found, isSet := list[name]; isSet {
			return &found
		}
	}
	return nil
}

// checkRange looks for a container whose quantities a LimitRange does not allow.
func checkRange(pods podSet, index int, m *manifest, limits *corev1.LimitRange, r *reporter) {
	container := pods.typed().Containers[index]
	for _, name := range []corev1.ResourceName{"cpu", "memory"} {
		limit, request := quantityOf(container, name, true, limits), quantityOf(container, name, false, limits)
		report := func(format string, args ...any) {
			pods.field(r, fmt.Sprintf("containers|%d|resources", index), "%s %s: the API server refuses new pods",
				m.named(), fmt.Sprintf(format, args...))
		}
		if limit != nil && request != nil && limit.Cmp(*request) < 0 {
			report("adds the limit %s of %s, and the container %s requests %s", limit, name, container.Name, request)
		}
		for _, item := range limits.Spec.Limits {
			most, hasMost := item.Max[name]
			least, hasLeast := item.Min[name]
			switch {
			case item.Type != corev1.LimitTypeContainer:
			case hasMost && limit.Cmp(most) > 0:
				report("has max.%s %s, and the limit of the container %s is %s", name, &most, container.Name, limit)
			case hasLeast && request.Cmp(least) < 0:
				report("has min.%s %s, and the container %s requests %s", name, &least, container.Name, request)
			}
		}
	}
}

// checkQuota looks for a quota that the pods of the payload exceed, or of a quantity that they do not have.
func (s *subject) checkQuota(m *manifest, key corev1.ResourceName, hard resource.Quantity, r *reporter) {
	kind, name, isQualified := strings.Cut(string(key), ".")
	if !isQualified {
		kind, name = "requests", string(key)
	}
	isCount := name == "pods" || name == "count/pods"
	if !isCount && name != "cpu" && name != "memory" {
		return
	}
	defaults := &corev1.LimitRange{}
	each(s, kinds.LimitRange, func(other *manifest, limits *corev1.LimitRange) {
		if other.id.Namespace == m.id.Namespace {
			defaults.Spec.Limits = append(defaults.Spec.Limits, limits.Spec.Limits...)
		}
	})
	needed, most, largest, seen := resource.Quantity{}, resource.Quantity{}, "", map[kinds.ID]bool{}
	for _, pods := range s.pods()[m.id.Namespace] {
		if seen[pods.by.id] || pods.typed() == nil || !s.shareCluster(m, pods.by) {
			continue
		}
		seen[pods.by.id] = true // of an object's variants for different clusters, one counts
		count, perPod, containers := s.leastPods(pods.by), resource.Quantity{}, pods.typed().Containers
		if isCount {
			perPod, containers = resource.MustParse("1"), nil
		}
		for _, container := range containers {
			amount := quantityOf(container, corev1.ResourceName(name), kind == "limits", defaults)
			if amount == nil {
				r.field(m, []string{"spec", "hard", string(key)}, "the quota of %s refuses pods without it, such as "+
					"those of %s: set it there, or add a LimitRange with a default", key, pods.by.named())
				return
			}
			perPod.Add(*amount)
		}
		sum := perPod.DeepCopy()
		sum.Mul(count)
		needed.Add(sum)
		if sum.Cmp(most) > 0 {
			most, largest = sum, fmt.Sprintf("%d × %s of %s", count, &perPod, pods.by.named())
		}
	}
	if needed.Cmp(hard) > 0 {
		r.field(m, []string{"spec", "hard", string(key)}, "the quota of %s is %s, and the pods of the payload need "+
			"%s, first of all %s, so the API server refuses some: raise it, or let them need less", key, &hard,
			&needed, largest)
	}
}

// leastPods returns the number of pods that a workload has at least, without Jobs.
func (s *subject) leastPods(m *manifest) int64 {
	replicas, autoscaler := m.number(1, "spec", "replicas"), s.autoscalerOf(m.id)
	switch {
	case !(podSet{by: m}).restarts():
		return 0
	case autoscaler == nil:
		return replicas
	case autoscaler.groupKind() == kinds.HorizontalPodAutoscaler:
		return autoscaler.number(1, "spec", "minReplicas") // whatever the workload has
	default:
		return min(replicas, 1)
	}
}

// checkContested looks for budgets and autoscalers of the same pods.
func checkContested(s *subject, r *reporter) {
	budgets, autoscalers := map[kinds.ID]*manifest{}, map[kinds.ID]*manifest{}
	each(s, kinds.HorizontalPodAutoscaler, func(m *manifest, _ *autoscalingv2.HorizontalPodAutoscaler) {
		target, _ := kinds.ScaleTarget(m.Object())
		if other := autoscalers[target]; other != nil && other.id != m.id && s.shareCluster(other, m) {
			r.field(m, []string{"spec", "scaleTargetRef"}, "%s scales %s, too, and then neither does: use one "+
				"with all metrics", other.named(), target)
		}
		autoscalers[target] = m
	})
	each(s, kinds.PodDisruptionBudget, func(m *manifest, budget *policyv1.PodDisruptionBudget) {
		selected := s.podsWith(labelSelector(budget.Spec.Selector), m, s.index) // {} selects all
		for _, pods := range selected {
			if other := budgets[pods.by.id]; other != nil && other.id != m.id && s.shareCluster(other, m) {
				r.field(m, []string{"spec", "selector"}, "%s selects the pods of %s, too, and the API server evicts "+
					"no pod with two budgets, so its node can't be drained: use one", other.named(), pods.by.id)
			}
			budgets[pods.by.id] = m
		}
	})
}
