package ready

import (
	"cmp"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkConditions judges a custom resource by what most of them have in common. One that
// says nothing of itself is ready: there is no telling it from one that never will.
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
	case status.FailedStatus: // its controller may still find a way
		return waiting("it says that it is stuck: %s", cmp.Or(message, cause, "not why"))
	case status.InProgressStatus:
		return waiting("%s", cmp.Or(message, "it says that it is not ready: "+cmp.Or(cause, "not why")))
	default:
		return waiting("its status is %s", result.Status)
	}
}
