package controlplane

import (
	"fmt"

	machinev1 "github.com/openshift/api/machine/v1"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// A Problem stops the controller until an administrator has solved it. The empty one is none.
type Problem struct{ Reason, Message string }

// The reasons of the condition Degraded. Those of OpenShift come first.
const (
	noReadyMachines       = "NoReadyMachines"
	unmanagedNodes        = "UnmanagedNodes"
	excessIndexes         = "ExcessIndexes"
	excessUpdatedReplicas = "ExcessUpdatedReplicas"
	failedReplacement     = "FailedReplacement"
	machinesAlreadyOwned  = "MachinesAlreadyOwned"
	invalidConfiguration  = "InvalidConfiguration"
	replicasMismatch      = "ReplicasMismatch"
	unknownFailureDomains = "UnknownFailureDomains"
)

// problemOf returns the first problem of a set, in OpenShift's order.
func problemOf(spec machinev1.ControlPlaneMachineSetSpec, wanted int, slots []Slot, unmanaged []string) Problem {
	isReady := func(m Machine) bool { return m.IsReady }
	ready := 0
	for _, slot := range slots {
		if slot.any(isReady) {
			ready++
		}
	}
	switch {
	case ready == 0:
		return Problem{noReadyMachines, "No ready control plane machines found"}
	case len(unmanaged) > 0:
		return Problem{unmanagedNodes,
			fmt.Sprintf("Found %d unmanaged node(s): %s; create a Machine for each, or remove the label of its role",
				len(unmanaged), few(unmanaged))}
	case len(slots) > wanted:
		return Problem{excessIndexes,
			fmt.Sprintf("Observed %d index(es) in excess: delete machines of one index after the other",
				len(slots)-wanted)}
	}
	if spec.Strategy.Type == machinev1.OnDelete {
		if problem := excessOf(slots); problem.Reason != "" {
			return problem
		}
	}
	if problem := failureOf(slots); problem.Reason != "" {
		return problem
	}
	return adoptionProblem(spec.State == machinev1.ControlPlaneMachineSetStateActive, wanted, slots)
}

// excessOf finds indexes with several machines that are all wanted. Only the strategy RollingUpdate deletes machines.
func excessOf(slots []Slot) Problem {
	for _, slot := range slots {
		updated := namesOf([]Slot{slot}, Machine.IsUpToDate)
		if len(updated) > 1 {
			return Problem{excessUpdatedReplicas,
				fmt.Sprintf("Observed %d updated machine(s) in excess for index %d: delete all but one of %s",
					len(updated)-1, slot.Index, few(updated))}
		}
	}
	return Problem{}
}

// failureOf finds replacements that have failed.
func failureOf(slots []Slot) Problem {
	var failed []string
	for _, slot := range slots {
		if !slot.any(Machine.isReplaced) {
			continue
		}
		for _, m := range slot.Machines {
			if m.isPending() && m.Error != "" {
				failed = append(failed, fmt.Sprintf("%s (%s)", m.Name, m.Error))
			}
		}
	}
	if len(failed) == 0 {
		return Problem{}
	}
	return Problem{failedReplacement,
		fmt.Sprintf("Observed %d replacement machine(s) in error state: %s; correct the template, or delete them",
			len(failed), few(failed))}
}

// adoptionProblem finds machines that a set must not adopt. OpenShift refuses to create such a set; here an admission
// policy can't count machines.
func adoptionProblem(isActive bool, wanted int, slots []Slot) Problem {
	foreign := namesOf(slots, func(m Machine) bool { return m.Owner == replicas.Foreign })
	ours := namesOf(slots, func(m Machine) bool { return m.Owner == replicas.Ours })
	unplaced := namesOf(slots, func(m Machine) bool { return m.IsUnplaced })
	staying := namesOf(slots, func(m Machine) bool { return !m.IsDeleting })
	switch {
	case isActive && len(foreign) > 0:
		return Problem{machinesAlreadyOwned,
			fmt.Sprintf("Observed already owned machine(s) in target machines: %s; remove their owner references",
				few(foreign))}
	case len(ours) > 0: // the set has adopted machines, and may change their number and domains since
	case isActive && len(staying) != wanted:
		return Problem{replicasMismatch,
			fmt.Sprintf("control plane machine set replicas (%d) does not match the current number of control plane "+
				"machines (%d)",
				wanted, len(staying))}
	case len(unplaced) > 0:
		return Problem{unknownFailureDomains,
			fmt.Sprintf("control plane machines are using unspecified failure domain(s): %s; add their domains to "+
				"the template", few(unplaced))}
	}
	return Problem{}
}

func namesOf(slots []Slot, current func(Machine) bool) []string {
	var names []string
	for _, slot := range slots {
		for _, m := range slot.Machines {
			if current(m) {
				names = append(names, m.Name)
			}
		}
	}
	return names
}
