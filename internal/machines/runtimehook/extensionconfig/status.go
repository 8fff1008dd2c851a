//lint:file-ignore SA1019 Cluster API's own controller still writes the deprecated conditions

package extensionconfig

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/runtimehook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// longestMessage limits the bytes of a problem in the condition.
const longestMessage = 4 << 10

// newStatus returns the status after a discovery. If an extension does not answer, as during a restart, the handlers of
// the last discovery are kept; after an invalid answer, there are none.
func newStatus(config *runtimev1.ExtensionConfig, found []runtimev1.ExtensionHandler,
	problem error) runtimev1.ExtensionConfigStatus {
	status := *config.Status.DeepCopy()
	var refused *runtimehook.CallError
	if problem == nil || errors.As(problem, &refused) && !runtimehook.IsUnanswered(problem) {
		status.Handlers = found
	}
	set(&status, config.Generation, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionFalse, Reason: clusterv1.NotPausedReason,
	})
	discovered := metav1.Condition{
		Type: runtimev1.ExtensionConfigDiscoveredCondition, Status: metav1.ConditionTrue,
		Reason: runtimev1.ExtensionConfigDiscoveredReason,
	}
	if problem != nil {
		discovered.Status, discovered.Reason = metav1.ConditionFalse, runtimev1.ExtensionConfigNotDiscoveredReason
		discovered.Message = "Error in discovery: " +
			printable.Truncate(printable.Line(problem.Error()), longestMessage)
	}
	set(&status, config.Generation, discovered)
	setDeprecated(&status, discovered)
	return status
}

// pausedStatus returns the status of a paused config.
func pausedStatus(config *runtimev1.ExtensionConfig) runtimev1.ExtensionConfigStatus {
	status := *config.Status.DeepCopy()
	set(&status, config.Generation, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
		Message: "ExtensionConfig has the annotation " + clusterv1.PausedAnnotation,
	})
	return status
}

func set(status *runtimev1.ExtensionConfigStatus, generation int64, condition metav1.Condition) {
	condition.ObservedGeneration = generation
	meta.SetStatusCondition(&status.Conditions, condition)
}

// setDeprecated sets the condition that tools for older versions of Cluster API read.
func setDeprecated(status *runtimev1.ExtensionConfigStatus, from metav1.Condition) {
	old := clusterv1.Condition{
		Type: runtimev1.RuntimeExtensionDiscoveredV1Beta1Condition, Status: corev1.ConditionStatus(from.Status),
		LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}
	if from.Status != metav1.ConditionTrue {
		old.Severity, old.Reason, old.Message = clusterv1.ConditionSeverityError,
			runtimev1.DiscoveryFailedV1Beta1Reason, from.Message
	}
	if status.Deprecated != nil && status.Deprecated.V1Beta1 != nil {
		for _, before := range status.Deprecated.V1Beta1.Conditions {
			if before.Type == old.Type && before.Status == old.Status {
				old.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	status.Deprecated = &runtimev1.ExtensionConfigDeprecatedStatus{
		V1Beta1: &runtimev1.ExtensionConfigV1Beta1DeprecatedStatus{Conditions: clusterv1.Conditions{old}},
	}
}
