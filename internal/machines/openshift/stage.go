package openshift

import (
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/openshift/conditions"
)

// StageOf returns the stage of a machine's deletion, and the reason of the wait, as far as they are recorded in the
// Machine.
func StageOf(m *machinev1beta1.Machine) (deletion.DeletionStage, string) {
	seen := snapshotOf(m, deletion.Drain{HasLooked: true, Left: []string{"pods"}})
	drained := conditions.Find(m.Status.Conditions, machinev1beta1.MachineDrained)
	exists := conditions.Find(m.Status.Conditions, machinev1beta1.InstanceExistsCondition)
	seen.Node.IsCordoned, seen.Drain.IsStuck = true, drained.Status == corev1.ConditionFalse
	seen.Infrastructure = deletion.Infrastructure{Exists: true, IsDeleting: exists.Reason == deletion.InstanceTerminating}
	if exists.Status == corev1.ConditionUnknown || exists.Reason == deletion.ErrorDeleting {
		seen.Infrastructure.Problem = exists.Message
	}
	step := deletion.OpenShift.Next(seen)
	return step.Stage, step.Reason
}

// snapshotOf returns a snapshot of the facts that a Machine records about its deletion, and of the known drain.
func snapshotOf(m *machinev1beta1.Machine, known deletion.Drain) deletion.Snapshot {
	known.IsDone = isDrained(m)
	seen := deletion.Snapshot{
		PreDrain:     deletionHooks(m.Spec.LifecycleHooks.PreDrain),
		PreTerminate: deletionHooks(m.Spec.LifecycleHooks.PreTerminate),
		Drain:        known,
	}
	_, seen.IsExcluded = m.Annotations[deletion.ExcludeNodeDraining]
	if m.Status.NodeRef != nil {
		seen.Node.Name = m.Status.NodeRef.Name
	}
	return seen
}

func deletionHooks(hooks []machinev1beta1.LifecycleHook) []deletion.DeletionHook {
	var list []deletion.DeletionHook
	for _, hook := range hooks {
		list = append(list, deletion.DeletionHook{Name: hook.Name, Owner: hook.Owner})
	}
	return list
}
