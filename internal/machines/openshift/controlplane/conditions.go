package controlplane

import (
	"fmt"
	"strings"

	machinev1 "github.com/openshift/api/machine/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// The types of the conditions of a set, which are OpenShift's.
const (
	Available   = "Available"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Error       = "Error"
)

// maxMessage limits the bytes of the message of a condition.
const maxMessage = 1024

// countReplicas sets the counts of a status. During its deletion, a machine counts as ready while its node is ready,
// but not as updated.
func countReplicas(status *machinev1.ControlPlaneMachineSetStatus, slots []Slot) {
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas, status.UnavailableReplicas = 0, 0, 0, 0
	for _, slot := range slots {
		ready := 0
		for _, m := range slot.Machines {
			if m.IsReady {
				ready++
			}
			if m.IsUpToDate() {
				status.UpdatedReplicas++
			}
		}
		status.Replicas += int32(len(slot.Machines))
		status.ReadyReplicas += int32(ready)
		if ready == 0 {
			status.UnavailableReplicas++
		}
	}
}

// setConditions sets the conditions of a status that has its counts and its generation. failure is the error of the
// last write.
func setConditions(status *machinev1.ControlPlaneMachineSetStatus, wanted int32, problem Problem, waits []string,
	failure string) {
	set := func(kind string, isTrue bool, reason, message string) {
		condition := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason,
			Message: printable.Truncate(message, maxMessage), ObservedGeneration: status.ObservedGeneration,
		}
		if isTrue {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	if status.UnavailableReplicas > 0 {
		set(Available, false, "UnavailableReplicas",
			fmt.Sprintf("Missing %d available replica(s)", status.UnavailableReplicas))
	} else {
		set(Available, true, "AllReplicasAvailable", "")
	}
	if problem.Reason != "" {
		set(Degraded, true, problem.Reason, problem.Message)
	} else {
		set(Degraded, false, "AsExpected", "")
	}
	if failure != "" {
		set(Error, true, "WriteFailed", failure)
	} else {
		set(Error, false, "AsExpected", "")
	}
	switch {
	case problem.Reason != "":
		set(Progressing, false, "OperatorDegraded", "")
	case status.UpdatedReplicas < wanted:
		set(Progressing, true, "NeedsUpdateReplicas",
			withWaits(fmt.Sprintf("Observed %d replica(s) in need of update", wanted-status.UpdatedReplicas), waits))
	case status.Replicas > wanted:
		set(Progressing, true, "ExcessReplicas",
			withWaits(fmt.Sprintf("Waiting for %d old replica(s) to be removed", status.Replicas-wanted), waits))
	default:
		set(Progressing, false, "AllReplicasUpdated", "")
	}
}

func withWaits(message string, waits []string) string {
	if len(waits) == 0 {
		return message
	}
	return message + ": " + strings.Join(waits, "; ")
}
