package manager_test

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// drainsOfControlPlane contains nodes of the control plane that the controllers drained at the same time.
func drainsOfControlPlane(histories map[string]*history) []string {
	type drain struct {
		machine string
		span
	}
	var drains []drain
	for _, h := range histories {
		for _, cordon := range h.cordons() {
			if !isOfControlPlane(h.Node.States) {
				continue
			}
			end := endOfTime
			if removal, ok := h.Node.firstWhen(isGone); ok {
				end = removal.Begin
			}
			drains = append(drains, drain{h.Name, span{Begin: cordon.End, End: end}})
		}
	}
	var found []string
	for i, item := range drains {
		for _, other := range drains[i+1:] {
			if item.Begin.Before(other.End) && other.Begin.Before(item.End) {
				found = append(found,
					fmt.Sprintf("control-plane nodes are drained one at a time: those of %s and %s at once at %s",
						min(item.machine, other.machine), max(item.machine, other.machine),
						clock(later(item.Begin, other.Begin))))
			}
		}
	}
	return found
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func isOfControlPlane(node []recorded[corev1.Node]) bool {
	return slices.ContainsFunc(node, func(state recorded[corev1.Node]) bool {
		if state.Object == nil {
			return false
		}
		_, isOne := state.Object.Labels["node-role.kubernetes.io/control-plane"]
		return isOne
	})
}
