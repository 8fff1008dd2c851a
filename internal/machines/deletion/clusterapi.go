package deletion

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClusterAPI is the dialect of cluster.x-k8s.io. Pre-drain hooks hold machines that are excluded from draining too, a
// late hook returns a machine to its stage, and nothing is recorded as done: pods and volumes are checked again until the
// wait for pre-terminate hooks has begun. Reasons and messages are upstream's.
var ClusterAPI = Dialect{
	holdForPreDrainHooks, lookAtInfrastructure, drainUntilTerminate, detachVolumes, holdForPreTerminateHooks,
	terminateInfrastructure, removeBootstrap, removeNodeInTime, completeDeletion,
}

// ClusterAPIFacts are the facts that only Cluster API's dialect uses.
type ClusterAPIFacts struct {
	Now time.Time
	// IsNodeKept is true if the node is neither drained nor deleted: it does not exist, the cluster or its control plane is being
	// deleted, or it is the last machine of a control plane.
	IsNodeKept bool
	Began      map[DeletionStage]time.Time     // recorded start times
	Timeouts   map[DeletionStage]time.Duration // zero means none
	Volumes    Volumes
	Bootstrap  Infrastructure
}

// Volumes are those that are attached to the node.
type Volumes struct {
	IsExcluded bool // they are not waited for
	IsDone     bool // they were detached, in this pass
	HasLooked  bool
	Left       []string // volumes that are still attached, in words
	Problem    string   // why they could not be read
}

// clusterAPIRetry is the interval at which remaining pods and volumes are checked.
const clusterAPIRetry = 20 * time.Second

// recordedFirst returns a step that records the start of a stage, before any other step of the stage.
func (s Snapshot) recordedFirst(step DeletionStep) (DeletionStep, bool) {
	if s.ClusterAPI.Began[step.Stage].IsZero() {
		step.Action = RecordStart
	}
	return step, true
}

// hasTimedOut reports whether a stage has exceeded its timeout.
func (s Snapshot) hasTimedOut(stage DeletionStage) bool {
	began, timeout := s.ClusterAPI.Began[stage], s.ClusterAPI.Timeouts[stage]
	return timeout > 0 && !began.IsZero() && !s.ClusterAPI.Now.Before(began.Add(timeout))
}

// leavesNode reports whether the node is no longer drained, nor its volumes waited for. Once the wait for pre-terminate
// hooks has begun, the owners of the hooks may remove resources that pods need to terminate.
func (s Snapshot) leavesNode() bool {
	return s.ClusterAPI.IsNodeKept || !s.ClusterAPI.Began[BeforeTerminate].IsZero() ||
		!s.Infrastructure.Exists || s.Infrastructure.IsDeleting
}

func holdForPreDrainHooks(s Snapshot) (DeletionStep, bool) {
	if s.ClusterAPI.IsNodeKept || len(s.PreDrain) == 0 {
		return DeletionStep{}, false
	}
	return s.recordedFirst(DeletionStep{
		Stage: BeforeDrain, Action: Wait, Reason: "WaitingForPreDrainHook",
		Message: fmt.Sprintf("Waiting for pre-drain hooks to succeed (hooks: %s)", keys(s.PreDrain)),
	})
}

// lookAtInfrastructure waits until it is known whether the infrastructure exists: unreadable infrastructure would be
// mistaken for deleted one, and the node would not be drained.
func lookAtInfrastructure(s Snapshot) (DeletionStep, bool) {
	if s.Infrastructure.Problem == "" {
		return DeletionStep{}, false
	}
	return DeletionStep{Stage: Terminating, Action: Wait, Reason: "InternalError", Message: s.Infrastructure.Problem}, true
}

func drainUntilTerminate(s Snapshot) (DeletionStep, bool) {
	if s.leavesNode() || s.IsExcluded || s.Drain.IsDone || s.hasTimedOut(Draining) {
		return DeletionStep{}, false
	}
	began := s.ClusterAPI.Began[Draining]
	step := DeletionStep{Stage: Draining, Reason: "DrainingNode", Message: "Drain not completed yet" + startedAt(began) + ":"}
	switch {
	case began.IsZero():
		step.Action = RecordStart
	case s.Node.IsGone, s.Drain.HasLooked && s.Drain.Problem == "" && len(s.Drain.Left) == 0:
		step.Action = RecordDrained
	case s.Drain.Problem != "":
		step.Action, step.Message = Wait, "Error draining Node, please check controller logs for errors"
	case !s.Node.IsCordoned:
		step.Action = Cordon
	case !s.Drain.HasLooked:
		step.Action = Evict
	default:
		step.Action, step.After = Wait, clusterAPIRetry
		step.Message += "\n" + strings.Join(s.Drain.Left, "\n")
	}
	return step, true
}

func detachVolumes(s Snapshot) (DeletionStep, bool) {
	volumes := s.ClusterAPI.Volumes
	if s.leavesNode() || volumes.IsExcluded || volumes.IsDone || s.hasTimedOut(DetachingVolumes) {
		return DeletionStep{}, false
	}
	began := s.ClusterAPI.Began[DetachingVolumes]
	step := DeletionStep{
		Stage: DetachingVolumes, Reason: "WaitingForVolumeDetach",
		Message: "Waiting for Node volumes to be detached" + startedAt(began),
	}
	switch {
	case began.IsZero():
		step.Action = RecordStart
	case volumes.Problem != "":
		step.Action, step.Message = Wait, "Error waiting for volumes to be detached from Node, please check controller logs for errors"
	case !volumes.HasLooked && !s.Node.IsGone:
		step.Action = LookAtVolumes
	case len(volumes.Left) > 0:
		step.Action, step.After = Wait, clusterAPIRetry
		step.Message += "\n" + strings.Join(volumes.Left, "\n")
	default:
		step.Action = RecordDetached
	}
	return step, true
}

func holdForPreTerminateHooks(s Snapshot) (DeletionStep, bool) {
	if len(s.PreTerminate) == 0 {
		return DeletionStep{}, false
	}
	return s.recordedFirst(DeletionStep{
		Stage: BeforeTerminate, Action: Wait, Reason: "WaitingForPreTerminateHook",
		Message: fmt.Sprintf("Waiting for pre-terminate hooks to succeed (hooks: %s)", keys(s.PreTerminate)),
	})
}

func terminateInfrastructure(s Snapshot) (DeletionStep, bool) {
	return awaitObject(s.Infrastructure, DeletionStep{
		Stage: Terminating, Action: DeleteInfrastructure, Reason: "WaitingForInfrastructureDeletion",
	})
}

func removeBootstrap(s Snapshot) (DeletionStep, bool) {
	return awaitObject(s.ClusterAPI.Bootstrap, DeletionStep{
		Stage: RemovingConfig, Action: DeleteBootstrap, Reason: "WaitingForBootstrapDeletion",
	})
}

// awaitObject deletes an object, by the action of a step, and waits until it is gone.
func awaitObject(object Infrastructure, step DeletionStep) (DeletionStep, bool) {
	step.Message = fmt.Sprintf("Waiting for %s to be deleted", object.Name)
	switch {
	case object.Problem != "":
		step.Action, step.Reason, step.Message = Wait, "InternalError", object.Problem
	case object.IsDeleting && object.Exists:
		step.Action, step.After = Wait, infrastructureGoes
	}
	return step, object.Exists || object.Problem != ""
}

func removeNodeInTime(s Snapshot) (DeletionStep, bool) {
	if s.ClusterAPI.IsNodeKept || s.Node.Name == "" || s.Node.IsGone {
		return DeletionStep{}, false
	}
	if s.Node.Problem == "" {
		return DeletionStep{Stage: RemovingNode, Action: DeleteNode, Reason: "DeletingNode"}, true
	}
	return DeletionStep{
		Stage: RemovingNode, Action: Wait, Reason: "DeletingNode",
		Message: "Error deleting Node, please check controller logs for errors",
	}, !s.hasTimedOut(RemovingNode)
}

func completeDeletion(Snapshot) (DeletionStep, bool) {
	return DeletionStep{Stage: Completed, Action: Release, Reason: "DeletionCompleted", Message: "Deletion completed"}, true
}

// startedAt returns the start of a stage in words; empty before it has begun.
func startedAt(began time.Time) string {
	if began.IsZero() {
		return ""
	}
	return fmt.Sprintf(" (started at %s)", began.UTC().Format(time.RFC3339))
}

// keys lists the annotations of hooks in their order.
func keys(hooks []DeletionHook) string {
	list := make([]string, len(hooks))
	for i, hook := range hooks {
		list[i] = hook.Name
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
