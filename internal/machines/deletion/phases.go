package deletion

import (
	"fmt"
	"strings"
	"time"
)

// OpenShift is the dialect of machine.openshift.io. A machine that is excluded from draining, or has no node,
// is not held by its pre-drain hooks: upstream decided so, and the owners of hooks rely on it.
var OpenShift = Dialect{skipDrain, awaitPreDrainHooks, drain, awaitPreTerminateHooks, terminate, removeNode}

const (
	// podsEnd is the interval at which terminating pods are checked: first short, later long.
	podsEndSoon, podsEndSeldom = time.Second, 10 * time.Second
	// A refused eviction is retried after 5 s, and then after twice as long each time, up to a minute: an
	// administrator who loosens a disruption budget waits for the drain to notice.
	refusedSoon, refusedSeldom = 5 * time.Second, time.Minute
	// patientLooks is the number of checks of terminating pods before they are reported as a problem: half a minute.
	patientLooks = 5
	// otherDrains is the interval at which the drain of another node of the control plane is checked.
	otherDrains = 20 * time.Second
	// infrastructureGoes is the interval at which infrastructure that is being deleted is checked, besides watching it.
	infrastructureGoes = 30 * time.Second
	// mostPods is how many of the remaining pods are shown: a node may have hundreds.
	mostPods = 5
)

func skipDrain(s Snapshot) (DeletionStep, bool) {
	if s.Drain.IsDone || !s.IsExcluded && s.Node.Name != "" {
		return DeletionStep{}, false
	}
	return DeletionStep{Stage: Draining, Action: SkipDrain, Reason: "DrainSkipped", Message: "Node drain skipped"}, true
}

func awaitPreDrainHooks(s Snapshot) (DeletionStep, bool) {
	if s.Drain.IsDone || len(s.PreDrain) == 0 {
		return DeletionStep{}, false
	}
	return DeletionStep{
		Stage: BeforeDrain, Action: Wait, Reason: "HookPresent",
		Message: "waiting for pre-drain hooks: " + names(s.PreDrain),
	}, true
}

// awaitPreTerminateHooks waits for the hooks that hold the infrastructure. Once its deletion was requested, nothing can
// hold it, and a late hook does not return a machine to an earlier phase.
func awaitPreTerminateHooks(s Snapshot) (DeletionStep, bool) {
	if len(s.PreTerminate) == 0 || s.Infrastructure.IsDeleting {
		return DeletionStep{}, false
	}
	return DeletionStep{
		Stage: BeforeTerminate, Action: Wait, Reason: "HookPresent",
		Message: "waiting for pre-terminate hooks: " + names(s.PreTerminate),
	}, true
}

// drain evicts the pods of the node.
func drain(s Snapshot) (DeletionStep, bool) {
	step := DeletionStep{Stage: Draining}
	switch {
	case s.Drain.IsDone:
		return step, false
	case s.Node.IsGone, s.Drain.HasLooked && s.Drain.Problem == "" && len(s.Drain.Left) == 0:
		step.Action, step.Reason, step.Message = RecordDrained, "DrainSucceeded", "Drain finished successfully"
	case !s.Node.IsCordoned && s.Node.IsControlPlane && len(s.Node.OthersCordoned) > 0:
		step.Action, step.Reason, step.After = Wait, "OtherControlPlaneNodeDrains", otherDrains
		step.Message = "control plane nodes are drained one at a time, and these take no pods: " +
			strings.Join(s.Node.OthersCordoned, ", ")
	case !s.Node.IsCordoned:
		step.Action, step.Reason = Cordon, "DrainProceeds"
	case !s.Drain.HasLooked:
		step.Action, step.Reason = Evict, "DrainProceeds"
	default:
		return awaitPods(s), true
	}
	return step, true
}

// awaitPods waits for the remaining pods of the node.
func awaitPods(s Snapshot) DeletionStep {
	step := DeletionStep{Stage: Draining, Action: Wait, Reason: "PodsEnd", Message: fewPods(s.Drain.Left)}
	if s.Drain.Problem != "" {
		step.Message = s.Drain.Problem
	}
	if s.Drain.Problem != "" || s.Drain.IsStuck || s.Drain.Looks > patientLooks {
		step.Reason = "DrainError"
	}
	step.After = doubled(refusedSoon, s.Drain.Looks, refusedSeldom)
	if s.Drain.Problem == "" && !s.Drain.IsStuck {
		step.After = doubled(podsEndSoon, s.Drain.Looks, podsEndSeldom)
	}
	return step
}

// fewPods returns what holds the first of some pods, and how many more there are.
func fewPods(left []string) string {
	text := strings.Join(left[:min(mostPods, len(left))], "; ")
	if more := len(left) - mostPods; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// terminate deletes the infrastructure, and waits until it is gone.
func terminate(s Snapshot) (DeletionStep, bool) {
	infrastructure := s.Infrastructure
	step := DeletionStep{Stage: Terminating, Action: Wait}
	switch {
	case infrastructure.Problem != "":
		step.Reason, step.Message, step.After = "InfrastructureProblem", infrastructure.Problem, infrastructure.RetryAfter
	case !infrastructure.Exists:
		return step, false
	case !infrastructure.IsDeleting:
		step.Action, step.Reason = DeleteInfrastructure, "Terminating"
	default:
		step.Reason, step.After = "InfrastructureGoes", infrastructureGoes
		step.Message = fmt.Sprintf("waiting for %s to be gone", infrastructure.Name)
		if len(infrastructure.Finalizers) > 0 {
			step.Message += ", which these finalizers hold: " + strings.Join(infrastructure.Finalizers, ", ")
		}
	}
	return step, true
}

func removeNode(s Snapshot) (DeletionStep, bool) {
	if s.Node.Name == "" || s.Node.IsGone {
		return DeletionStep{}, false
	}
	return DeletionStep{Stage: RemovingNode, Action: DeleteNode, Reason: "Terminated"}, true
}

// doubled returns a duration that doubles with each check except for the first, up to a limit.
func doubled(first time.Duration, looks int, limit time.Duration) time.Duration {
	for ; looks > 1 && first < limit; looks-- {
		first *= 2
	}
	return min(first, limit)
}

// names lists hooks with their owners.
func names(hooks []DeletionHook) string {
	list := make([]string, len(hooks))
	for i, hook := range hooks {
		list[i] = fmt.Sprintf("%s (%s)", hook.Name, hook.Owner)
	}
	return strings.Join(list, ", ")
}
