package ready

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// These rules are the rules of the cluster-version operator.

// The reasons of the cluster-version operator.
const (
	ReasonNoVersions             = "ClusterOperatorNoVersions"
	ReasonNotAvailable           = "ClusterOperatorNotAvailable"
	ReasonDegraded               = "ClusterOperatorDegraded"
	ReasonUpdating               = "ClusterOperatorUpdating"
	ReasonWorkloadNotProgressing = "WorkloadNotProgressing"
	ReasonWorkloadNotAvailable   = "WorkloadNotAvailable"
)

// upstreamRules are the kinds that the cluster-version operator checks after it has applied them.
var upstreamRules = map[schema.GroupKind]rule{
	kinds.Deployment:               checkDeploymentUpstream,
	kinds.DaemonSet:                checkDaemonSetUpstream,
	kinds.Job:                      checkJobUpstream,
	kinds.ClusterOperator:          checkClusterOperator,
	kinds.CustomResourceDefinition: checkDefinitionUpstream,
}

func checkUpstream(kind schema.GroupKind, o liveObject, related Related) Verdict {
	check, isKnown := upstreamRules[kind]
	isOperator := kind.Kind == "ClusterOperator"
	if !isKnown || related.Installing && !isOperator {
		return ready()
	}
	return check(o, related)
}

func checkDeploymentUpstream(o liveObject, _ Related) Verdict {
	progress, available := o.condition("Progressing"), o.condition("Available")
	isLate := progress.isFalse() && progress.reason == "ProgressDeadlineExceeded"
	switch failure := o.condition("ReplicaFailure"); {
	case o.text("metadata", "deletionTimestamp") != "":
		return waiting(beingDeleted)
	case failure.isTrue():
		return waiting("pods can't be created: %s",
			failure.reasonAndMessage("the controller reports no reason")).because(ReasonWorkloadNotProgressing, "")
	case available.isFalse() && isLate:
		return failed("it is not available and makes no progress: %s",
			progress.reasonAndMessage("")).because(ReasonWorkloadNotAvailable, "")
	case available.isFalse() && progress.isFalse():
		return waiting("it is not available and makes no progress: %s",
			progress.reasonAndMessage("the controller reports no reason")).because(ReasonWorkloadNotAvailable, "")
	case isLate:
		return failed("it makes no progress: %s", progress.reasonAndMessage("")).because(ReasonWorkloadNotProgressing,
			"")
	default:
		return ready()
	}
}

func checkDaemonSetUpstream(o liveObject, _ Related) Verdict {
	if o.text("metadata", "deletionTimestamp") != "" {
		return waiting(beingDeleted)
	}
	return ready()
}

func checkJobUpstream(o liveObject, _ Related) Verdict {
	if failure, isFailed := o.failureOfJob(); isFailed {
		return failed("%s", failure)
	}
	return ready()
}

func checkDefinitionUpstream(o liveObject, _ Related) Verdict {
	if o.condition("Established").isTrue() {
		return ready()
	}
	return checkDefinition(o, Related{})
}

// checkClusterOperator is the only rule of both standards: a ClusterOperator reports the
// state of its component to the cluster-version operator. The condition Progressing does
// not matter.
func checkClusterOperator(o liveObject, related Related) Verdict {
	var expected []liveObject
	if related.Manifest != nil {
		expected = liveObject(related.Manifest.Object).list("status", "versions")
	}
	available, degraded := o.condition("Available"), o.condition("Degraded")
	undone := missingVersions(expected, o.list("status", "versions"))
	switch {
	case len(expected) == 0:
		return failed("its manifest has no status.versions: list the versions that it has to report").because(
			ReasonNoVersions, reason.Fail,
		)
	case !available.isTrue():
		return waiting("it is not available: %s",
			available.reasonAndMessage("it has not reported Available=True yet")).because(ReasonNotAvailable,
			reason.Fail)
	case !degraded.isFalse():
		effect := reason.FailAfterInterval
		if related.Installing {
			effect = reason.Report
		}
		return waiting("it is degraded: %s",
			degraded.reasonAndMessage("it has not reported Degraded=False yet")).because(ReasonDegraded, effect)
	case len(undone) > 0 && !related.Installing:
		return waiting("%s", strings.Join(undone, ", ")).because(ReasonUpdating, reason.None)
	default:
		return ready()
	}
}

// missingVersions returns messages about the versions that the ClusterOperator does not report as expected yet.
func missingVersions(expected, reported []liveObject) []string {
	var undone []string
	for _, want := range expected {
		name, current := want.text("name"), ""
		for _, have := range slices.Backward(reported) { // the first version of a name counts
			if have.text("name") == name {
				current = have.text("version")
			}
		}
		switch {
		case current == want.text("version"):
		case current == "":
			undone = append(undone, fmt.Sprintf("%s is not yet at %s", name, want.text("version")))
		default:
			undone = append(undone, fmt.Sprintf("%s is at %s, not yet at %s", name, current, want.text("version")))
		}
	}
	slices.Sort(undone)
	return undone
}

// because adds the cluster-version operator's reason and effect.
func (v Verdict) because(name string, effect reason.Effect) Verdict {
	v.Reason, v.Effect = name, effect
	return v
}
