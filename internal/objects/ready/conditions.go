package ready

import (
	"cmp"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkConditions checks a custom resource by the common conditions, as kstatus does. A
// custom resource without conditions is ready: many never have any.
func checkConditions(object *unstructured.Unstructured) Verdict {
	o := live(object.Object)
	if o.isUnseen() {
		return waiting(notSeen)
	}
	result, err := status.Compute(object)
	if err != nil {
		return waiting("its status can't be read: %v", err)
	}
	message, cause := result.Message, ""
	for _, c := range result.Conditions {
		message, cause = cmp.Or(message, c.Message), cmp.Or(cause, c.Reason)
	}
	switch result.Status {
	case status.CurrentStatus:
		return ready()
	case status.TerminatingStatus:
		return waiting(beingDeleted)
	case status.FailedStatus: // its controller may still recover
		return waiting("it is stuck: %s", cmp.Or(message, cause, "its status has no reason"))
	case status.InProgressStatus:
		return waiting("%s", cmp.Or(message, "it is not ready: "+cmp.Or(cause, "its status has no reason")))
	default:
		return waiting("its status is %s", result.Status)
	}
}
