package manager_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// controllerAgent is the user agent of the controllers in these tests.
const controllerAgent = "machine-controller"

// sparedLabel is the label of pods that drains skip because of a rule of Cluster API.
const sparedLabel = "spared"

// An invariant is a rule that the history of each deleted machine must follow.
type invariant struct {
	name string
	// violations describes the events that violate the invariant.
	violations func(*history) []string
}

// invariants are true at any time, for deleted machines and for those being deleted. Each invariant finds only
// violations that surely happened, according to the times of requests.
var invariants = []invariant{
	{"no node is cordoned or drained while a pre-drain hook is there", drainsUnderHooks},
	{"no infrastructure is deleted while a hook holds it", terminationsUnderHooks},
	{"no infrastructure is deleted before the drain is recorded as done", terminationsBeforeDrain},
	{"no machine is drained or terminated before its deletion", deletionsOfLiving},
	{"a node is cordoned before its pods are evicted", evictionsWithoutCordon},
	{"a drain is over when no pod is left", drainedWithPods},
	{"a pod that a rule spares is not evicted", evictionsOfSpared},
	{"a completed drain is not repeated", drainsAfterDrained},
	{"a Node is deleted after the infrastructure", nodeBeforeInfrastructure},
	{"the finalizer goes last", releasedTooEarly},
	{"a deletion does not go back", wentBack},
}

// violationsOf returns the violations in the histories of machines, by invariant and machine.
func violationsOf(histories map[string]*history) []string {
	var all []string
	for _, h := range histories {
		for _, invariant := range invariants {
			for _, violation := range invariant.violations(h) {
				all = append(all, fmt.Sprintf("%s: %s: %s", invariant.name, h.Name, violation))
			}
		}
	}
	slices.Sort(all)
	return append(all, drainsOfControlPlane(histories)...)
}

func isGone[T any](object *T) bool { return object == nil }

func isThere[T any](object *T) bool { return object != nil }

func isCordoned(n *corev1.Node) bool { return n != nil && n.Spec.Unschedulable }

// cordons returns the times at which the controllers cordoned the node.
func (h *history) cordons() []span {
	var spans []span
	for i, state := range h.Node.States {
		if strings.HasPrefix(state.By, controllerAgent) && isCordoned(state.Object) &&
			(i == 0 || !isCordoned(h.Node.States[i-1].Object)) {
			spans = append(spans, state.span)
		}
	}
	return spans
}

// drains returns the times at which the controllers cordoned the node or requested an eviction.
func (h *history) drains() []span {
	spans := h.cordons()
	for _, eviction := range h.Evictions {
		if strings.HasPrefix(eviction.By, controllerAgent) {
			spans = append(spans, eviction.span)
		}
	}
	return spans
}

// within describes the acts that were done during one of the periods.
func within(what string, done, while []span) []string {
	var found []string
	for _, act := range done {
		for _, period := range while {
			if act.isWithin(period) {
				found = append(found, fmt.Sprintf("%s at %s, and so it was from %s on", what, clock(act.Begin),
					clock(period.Begin)))
			}
		}
	}
	return found
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

func drainsUnderHooks(h *history) []string {
	return within("drained", h.drains(), h.Machine.during((*machineState).isHeldBeforeDrain))
}

func terminationsUnderHooks(h *history) []string {
	return within("terminated", h.InfrastructureDeletes, h.Machine.during((*machineState).isHeldBeforeTerminate))
}

func terminationsBeforeDrain(h *history) []string {
	return within("terminated", h.InfrastructureDeletes, h.Machine.during((*machineState).lacksDrain))
}

func deletionsOfLiving(h *history) []string {
	acts := slices.Concat(h.InfrastructureDeletes, h.drains(), h.nodeDeletes())
	return within("drained or terminated", acts, h.Machine.during((*machineState).isLiving))
}

func evictionsWithoutCordon(h *history) []string {
	var evictions []span
	for _, eviction := range h.Evictions {
		if strings.HasPrefix(eviction.By, controllerAgent) {
			evictions = append(evictions, eviction.span)
		}
	}
	return within("evicted", evictions, h.Node.during(func(n *corev1.Node) bool { return n != nil && !isCordoned(n) }))
}

// drainedWithPods describes pods that were not evicted or deleted before the drain of their node was complete.
func drainedWithPods(h *history) []string {
	reported := h.drainEnds()
	if len(within("reported", reported, h.Node.during(isThere))) == 0 {
		return nil // no wait for pods of a deleted Node
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(h.Pods)) {
		if !h.isSpared(name) {
			found = append(found, within("over with pod "+name, reported, h.Pods[name].during(isThere))...)
		}
	}
	return found
}

// drainEnds returns the latest end of the node's drain: the drain was recorded as done, or the deletion of the
// infrastructure was requested. The result is empty if the drain is not over, or if there was none.
func (h *history) drainEnds() []span {
	if slices.ContainsFunc(h.Machine.States, func(s recorded[machineState]) bool {
		return s.Object != nil && s.Object.isDrainSkipped
	}) {
		return nil
	}
	ends := slices.Clone(h.InfrastructureDeletes)
	if drained, ok := h.Machine.firstWhen((*machineState).isDrained); ok {
		ends = append(ends, drained.span)
	}
	if len(ends) == 0 {
		return nil
	}
	return []span{slices.MinFunc(ends, func(a, b span) int { return a.Begin.Compare(b.Begin) })}
}

// isSpared reports of a pod that a drain leaves it alone, by a rule of Cluster API.
func (h *history) isSpared(pod string) bool {
	known := h.Pods[pod]
	return known != nil && slices.ContainsFunc(known.States, func(s recorded[corev1.Pod]) bool {
		return s.Object != nil && s.Object.Labels[sparedLabel] != ""
	})
}

// evictionsOfSpared contains pods that a rule keeps, and that were to be evicted.
func evictionsOfSpared(h *history) []string {
	var found []string
	for _, eviction := range h.Evictions {
		if strings.HasPrefix(eviction.By, controllerAgent) && h.isSpared(eviction.Pod) {
			found = append(found, fmt.Sprintf("pod %s at %s", eviction.Pod, clock(eviction.Begin)))
		}
	}
	return found
}

func drainsAfterDrained(h *history) []string {
	return within("drained", h.drains(), h.Machine.during((*machineState).isDrained))
}

// nodeDeletes returns the times at which the controllers deleted the Node.
func (h *history) nodeDeletes() []span {
	var spans []span
	for _, state := range h.Node.States {
		if state.Object == nil && strings.HasPrefix(state.By, controllerAgent) {
			spans = append(spans, state.span)
		}
	}
	return spans
}

func nodeBeforeInfrastructure(h *history) []string {
	return within("deleted the Node", h.nodeDeletes(), h.Infrastructure.during(isThere))
}

func releasedTooEarly(h *history) []string {
	released, ok := h.Machine.firstWhen((*machineState).isReleased)
	if !ok {
		return nil
	}
	var found []string
	found = append(found, within("released with infrastructure", []span{released.span},
		h.Infrastructure.during(isThere))...)
	found = append(found, within("released with a Node", []span{released.span}, h.Node.during(isThere))...)
	return append(found, within("released before it was done", []span{released.span},
		h.Machine.during((*machineState).isIncomplete))...)
}

// isLetGo reports whether the controller has released a machine, or the machine does not exist.
func isLetGo(m *machineState) bool { return m == nil || m.isReleased() }

// wentBack contains a stage that came after a later one.
func wentBack(h *history) []string {
	var found []string
	latest := 0
	for _, state := range h.Machine.States {
		if state.Object == nil || state.Object.stage == unknownStage {
			continue
		}
		stages, now := state.Object.stages(), state.Object.stage
		if now < latest {
			found = append(found, fmt.Sprintf("%s after %s at %s", stages[now], stages[latest], clock(state.Begin)))
		}
		latest = now
	}
	return found
}
