package owners

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/patch"
)

// The reasons of the condition OwnerRemediated of a machine that its owner has to replace.
const (
	RemediationDeleting = clusterv1.MachineSetMachineRemediationMachineDeletingReason
	RemediationDeferred = clusterv1.MachineSetMachineRemediationDeferredReason
	RemediationRefused  = clusterv1.MachineSetMachineCannotBeRemediatedReason
)

// A Remedy is the remediation of a machine that was marked as unhealthy.
type Remedy struct {
	Machine *clusterv1.Machine // as it was observed
	Changed *clusterv1.Machine // the machine with its new condition OwnerRemediated
	IsDue   bool               // the machine has to be deleted
}

// NewRemedy returns a remedy that sets a machine's condition OwnerRemediated; without a reason, it removes the
// condition.
func NewRemedy(machine *clusterv1.Machine, reason, message string) Remedy {
	changed := machine.DeepCopy()
	if reason == "" {
		meta.RemoveStatusCondition(&changed.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
	} else {
		meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
			Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse,
			Reason: reason, Message: message, ObservedGeneration: machine.Generation,
		})
	}
	return Remedy{Machine: machine, Changed: changed, IsDue: reason == RemediationDeleting}
}

// IsEmpty reports whether a remedy neither changes the conditions of its machine nor deletes it.
func (r Remedy) IsEmpty() bool {
	return !r.IsDue && equality.Semantic.DeepEqual(r.Machine.Status.Conditions, r.Changed.Status.Conditions)
}

// WriteCondition writes the condition OwnerRemediated. It comes before the deletion: the condition distinguishes
// remediations from other deletions, also after a restart in between.
func (r Remedy) WriteCondition(ctx context.Context, c client.StatusClient) error {
	if err := patch.StatusWithLock(ctx, c, r.Changed, r.Machine); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the condition %s of Machine %s: %w", clusterv1.MachineOwnerRemediatedCondition,
			r.Machine.Name, err)
	}
	return nil
}

// IsRecovered reports whether a machine was marked, and is healthy again.
func IsRecovered(m *clusterv1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) &&
		meta.IsStatusConditionFalse(m.Status.Conditions, clusterv1.MachineOwnerRemediatedCondition)
}
