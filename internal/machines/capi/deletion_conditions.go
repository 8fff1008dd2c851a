package capi

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/deletion"
)

// setStageCondition sets the condition of a stage when it begins.
func (d *deletionPass) setStageCondition() {
	const info = clusterv1.ConditionSeverityInfo
	switch d.step.Stage {
	case deletion.Draining:
		d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition, legacyFalse(clusterv1.DrainingV1Beta1Reason, info, "Draining the node before deletion"))
	case deletion.DetachingVolumes:
		d.setLegacy(clusterv1.VolumeDetachSucceededV1Beta1Condition,
			legacyFalse(clusterv1.WaitingForVolumeDetachV1Beta1Reason, info, "Waiting for node volumes to be detached"))
	}
	d.setHookConditions()
}

// setWaitConditions sets the conditions that report what the step waits for.
func (d *deletionPass) setWaitConditions() {
	d.setHookConditions()
	if d.step.Stage != deletion.Draining {
		return
	}
	draining := legacyFalse(clusterv1.DrainingV1Beta1Reason, clusterv1.ConditionSeverityInfo, d.step.Message)
	if d.failure != nil {
		draining = legacyFalse(clusterv1.DrainingFailedV1Beta1Reason, clusterv1.ConditionSeverityWarning, d.failure.Error())
	}
	d.setLegacy(clusterv1.DrainingSucceededV1Beta1Condition, draining)
}

// setHookConditions sets the conditions of the hooks by the stage.
func (d *deletionPass) setHookConditions() {
	waiting := legacyFalse(clusterv1.WaitingExternalHookV1Beta1Reason, clusterv1.ConditionSeverityInfo, "")
	if d.keeps == "" {
		preDrain := legacyTrue
		if d.step.Stage == deletion.BeforeDrain {
			preDrain = waiting
		}
		d.setLegacy(clusterv1.PreDrainDeleteHookSucceededV1Beta1Condition, preDrain)
	}
	switch d.step.Stage {
	case deletion.BeforeTerminate:
		d.setLegacy(clusterv1.PreTerminateDeleteHookSucceededV1Beta1Condition, waiting)
	case deletion.Terminating, deletion.RemovingConfig, deletion.RemovingNode, deletion.Completed:
		if d.infrastructure.problem == nil {
			d.setLegacy(clusterv1.PreTerminateDeleteHookSucceededV1Beta1Condition, legacyTrue)
		}
	}
}
