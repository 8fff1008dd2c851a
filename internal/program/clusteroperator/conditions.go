package clusteroperator

import (
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The reasons of conditions of every controller.
const (
	ReasonAsExpected    = "AsExpected"
	ReasonStarting      = "Starting"
	ReasonRightsMissing = "RightsMissing"
)

// A ControllerStatus is the state of a controller and of its work.
type ControllerStatus struct {
	// Awaits is what the controller waits for at its start; empty once it is available.
	Awaits string
	// Degraded is what an administrator has to fix, NotUpgradeable what prevents a minor update.
	Degraded, NotUpgradeable ControllerProblem
}

// A ControllerProblem is the reason and the message of a condition; without a reason, there is no problem.
type ControllerProblem struct{ Reason, Message string }

// next returns the next status, from the status before, the state of the controller, and the rights that it lacks.
func (o ReporterOptions) next(before configv1.ClusterOperatorStatus, s ControllerStatus, lacking []string, now metav1.Time) configv1.ClusterOperatorStatus {
	after := *before.DeepCopy()
	if s.Awaits == "" {
		after.Versions = []configv1.OperandVersion{{Name: "operator", Version: o.Version}}
	}
	after.RelatedObjects = o.RelatedObjects
	for _, wanted := range []configv1.ClusterOperatorStatusCondition{
		s.available(), o.progressing(before, s), o.degraded(s, lacking), condition(configv1.OperatorUpgradeable, configv1.ConditionFalse, s.NotUpgradeable),
	} {
		wanted.LastTransitionTime = now
		i := slices.IndexFunc(after.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == wanted.Type })
		if i < 0 {
			after.Conditions = append(after.Conditions, wanted)
			continue
		}
		if after.Conditions[i].Status == wanted.Status {
			wanted.LastTransitionTime = after.Conditions[i].LastTransitionTime
		}
		after.Conditions[i] = wanted
	}
	return after
}

// condition returns a condition with the status ofProblem if there is a problem, and the opposite status if there is none.
func condition(name configv1.ClusterStatusConditionType, ofProblem configv1.ConditionStatus, p ControllerProblem) configv1.ClusterOperatorStatusCondition {
	c := configv1.ClusterOperatorStatusCondition{Type: name, Status: ofProblem, Reason: p.Reason, Message: p.Message}
	if p.Reason != "" {
		return c
	}
	c.Reason, c.Status = ReasonAsExpected, configv1.ConditionTrue
	if ofProblem == configv1.ConditionTrue {
		c.Status = configv1.ConditionFalse
	}
	return c
}

func (s ControllerStatus) available() configv1.ClusterOperatorStatusCondition {
	var p ControllerProblem
	if s.Awaits != "" {
		p = ControllerProblem{ReasonStarting, s.Awaits}
	}
	return condition(configv1.OperatorAvailable, configv1.ConditionFalse, p)
}

func (o ReporterOptions) progressing(before configv1.ClusterOperatorStatus, s ControllerStatus) configv1.ClusterOperatorStatusCondition {
	isNew := !slices.ContainsFunc(before.Versions, func(v configv1.OperandVersion) bool { return v.Name == "operator" && v.Version == o.Version })
	var p ControllerProblem
	if isNew && s.Awaits != "" {
		p = ControllerProblem{ReasonStarting, "working towards " + o.Version}
	}
	return condition(configv1.OperatorProgressing, configv1.ConditionTrue, p)
}

// degraded reports missing rights first: they may be the cause of other problems.
func (o ReporterOptions) degraded(s ControllerStatus, lacking []string) configv1.ClusterOperatorStatusCondition {
	p := s.Degraded
	if len(lacking) > 0 {
		p = ControllerProblem{ReasonRightsMissing, fmt.Sprintf("service account %s/%s lacks the right to %s", o.Namespace, o.Name, List(lacking))}
	}
	return condition(configv1.OperatorDegraded, configv1.ConditionTrue, p)
}

// maxNames bounds the names in a message.
const maxNames = 5

// List returns the first names in order, and how many more there are.
func List(names []string) string {
	return printable.Few(slices.Sorted(slices.Values(names)), maxNames)
}
