// Package conditions sets and finds conditions of machine.openshift.io: those of Machines, and those of
// MachineHealthChecks. The API's own package has no functions for them, and those of apimachinery are for another type.
// For both APIs of machines, the package finds conditions of Nodes.
//
// The package reads and writes nothing.
//
// Start with Set.
package conditions

import (
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Set sets a condition in a list, and returns the list. The list is sorted by type. The time of the last transition
// changes only if another field changes.
func Set(all []machinev1beta1.Condition, condition machinev1beta1.Condition, now time.Time) []machinev1beta1.Condition {
	condition.LastTransitionTime = Time(now)
	if i := index(all, condition.Type); i < 0 {
		all = append(all, condition)
	} else {
		before := all[i]
		before.LastTransitionTime = condition.LastTransitionTime
		if before != condition {
			all[i] = condition
		}
	}
	slices.SortStableFunc(all, func(a, b machinev1beta1.Condition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	return all
}

// Find returns a condition, or an empty one.
func Find(all []machinev1beta1.Condition, kind machinev1beta1.ConditionType) machinev1beta1.Condition {
	if i := index(all, kind); i >= 0 {
		return all[i]
	}
	return machinev1beta1.Condition{}
}

func index(all []machinev1beta1.Condition, kind machinev1beta1.ConditionType) int {
	return slices.IndexFunc(all, func(c machinev1beta1.Condition) bool { return c.Type == kind })
}

// OfNode returns a condition of a Node; nil if there is none.
func OfNode(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// NodeReady returns the condition Ready of a Node, or an empty one.
func NodeReady(node *corev1.Node) corev1.NodeCondition {
	return ptr.Deref(OfNode(node, corev1.NodeReady), corev1.NodeCondition{})
}

// Time returns a time as the API stores it.
func Time(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
