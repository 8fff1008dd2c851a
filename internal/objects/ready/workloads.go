package ready

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// These rules are for workloads. A workload is ready when all of its pods are updated and
// available.

func checkDeployment(o liveObject, _ Related) Verdict {
	missing := o.missingOfDeployment()
	switch progress := o.condition("Progressing"); {
	case o.isUnknownToController():
		return waiting(notSeen)
	case missing == "":
		return ready()
	case o.flag("spec", "paused"):
		return waiting("it is paused: %s", missing)
	case progress.reason == "ProgressDeadlineExceeded":
		return failed("it made no progress within %s: %s",
			printable.Count(int(o.number(600, "spec", "progressDeadlineSeconds")), "second"), o.withFailure(missing))
	default:
		return waiting("%s", o.withFailure(missing))
	}
}

// missingOfDeployment returns the missing part of a rollout; "" if the Deployment is rolled
// out. Available replicas may be old, so no old replica may remain.
func (o liveObject) missingOfDeployment() string {
	want, total := o.wantedReplicas(), o.number(0, "status", "replicas")
	updated, available := o.number(0, "status", "updatedReplicas"), o.number(0, "status", "availableReplicas")
	switch {
	case updated < want:
		return share(updated, want, "replicas are updated")
	case total > updated && available < total:
		return fmt.Sprintf("%s pending termination, %s", thereAre(total-updated, "old replica"),
			share(available, total, "are available"))
	case total > updated:
		return thereAre(total-updated, "old replica") + " pending termination"
	default:
		return missingReplicas(want, total, available)
	}
}

func checkReplicaSet(o liveObject, _ Related) Verdict {
	missing := missingReplicas(o.wantedReplicas(), o.number(0, "status", "replicas"),
		o.number(0, "status", "availableReplicas"))
	switch {
	case o.isUnknownToController():
		return waiting(notSeen)
	case missing == "":
		return ready()
	default:
		return waiting("%s", o.withFailure(missing))
	}
}

func checkStatefulSet(o liveObject, _ Related) Verdict {
	if o.isUnknownToController() {
		return waiting(notSeen)
	}
	want, partition := o.wantedReplicas(), o.number(0, "spec", "updateStrategy", "rollingUpdate", "partition")
	updated, toUpdate := o.number(0, "status", "updatedReplicas"), want-partition
	isOnDelete := o.text("spec", "updateStrategy", "type") == "OnDelete" // other clients delete its pods, at any time
	switch {
	case isOnDelete || updated >= toUpdate:
	case partition > 0:
		return waiting("%s, with a partition of %d", share(updated, toUpdate, "replicas are updated"), partition)
	default:
		return waiting("%s", share(updated, toUpdate, "replicas are updated"))
	}
	if missing := missingReplicas(want, o.number(0, "status", "replicas"),
		o.number(0, "status", "availableReplicas")); missing != "" {
		return waiting("%s", missing)
	}
	return ready()
}

func checkDaemonSet(o liveObject, _ Related) Verdict {
	want := o.number(0, "status", "desiredNumberScheduled")
	updated, available := o.number(0, "status", "updatedNumberScheduled"), o.number(0, "status", "numberAvailable")
	isOnDelete := o.text("spec", "updateStrategy", "type") == "OnDelete"
	switch {
	case o.isUnknownToController():
		return waiting(notSeen)
	case updated < want && !isOnDelete:
		return waiting("%s", share(updated, want, "pods are updated"))
	case available < want:
		return waiting("%s", share(available, want, "pods are available"))
	default:
		return ready()
	}
}

func checkJob(o liveObject, _ Related) Verdict {
	if o.condition("Complete").isTrue() {
		return ready()
	}
	if failure, isFailed := o.failureOfJob(); isFailed {
		return failed("%s", failure)
	}
	if o.flag("spec", "suspend") || o.condition("Suspended").isTrue() {
		return waiting("it is suspended")
	}
	message := share(o.number(0, "status", "succeeded"), o.number(1, "spec", "completions"), "pods have succeeded")
	if lost := o.number(0, "status", "failed"); lost > 0 {
		message += fmt.Sprintf(", %d failed", lost)
	}
	return waiting("%s", message)
}

// HasSucceeded reports whether an object is a complete Job, also if it is being deleted.
func HasSucceeded(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind().GroupKind()
	return kind == kinds.Job && liveObject(object.Object).condition("Complete").isTrue()
}

// failureOfJob returns why a Job has failed. FailureTarget is set while its pods are still ending.
func (o liveObject) failureOfJob() (string, bool) {
	for _, kind := range []string{"Failed", "FailureTarget"} {
		if c := o.condition(kind); c.isTrue() {
			return c.reasonAndMessage("it has failed"), true
		}
	}
	return "", false
}

func checkPod(o liveObject, _ Related) Verdict {
	itself := condition{reason: o.text("status", "reason"), message: o.text("status", "message")}
	isReady, phase := o.condition("Ready"), o.text("status", "phase")
	switch scheduled := o.condition("PodScheduled"); {
	case phase == "Succeeded":
		return ready()
	case phase == "Failed":
		return failed("it has failed: %s", itself.reasonAndMessage(isReady.messageOr("its containers ended")))
	case isReady.isTrue():
		return ready()
	case scheduled.isFalse():
		return waiting("%s", unscheduledMessage(scheduled))
	default:
		return waiting("it is not ready: %s", isReady.messageOr("its containers have not started yet"))
	}
}

// unscheduledMessage returns why a pod can't be scheduled. The scheduler's sentences after the
// first one, about preemption, are left out.
func unscheduledMessage(scheduled condition) string {
	scheduled.message, _, _ = strings.Cut(scheduled.message, ". ")
	return "it has no node: " + scheduled.messageOr("the scheduler reports no reason")
}

// isUnknownToController reports whether the observedGeneration of a workload is behind its
// generation, or missing: the controllers of workloads always set it.
func (o liveObject) isUnknownToController() bool {
	return o.number(0, "status", "observedGeneration") < o.number(0, "metadata", "generation")
}

func (o liveObject) wantedReplicas() int64 { return o.number(1, "spec", "replicas") }

// missingReplicas returns the difference between the wanted and the existing replicas of any version.
func missingReplicas(want, total, available int64) string {
	switch {
	case available < want:
		return share(available, want, "replicas are available")
	case total > want:
		return thereAre(total-want, "replica") + " too many"
	default:
		return ""
	}
}

// withFailure adds why pods can't be created, if the controller reports it: a quota, for example.
func (o liveObject) withFailure(missing string) string {
	if failure := o.condition("ReplicaFailure"); failure.isTrue() {
		return missing + ": " + failure.messageOr("pods can't be created")
	}
	return missing
}

func share(have, want int64, text string) string {
	return fmt.Sprintf("%d of %d %s", have, want, text)
}

func thereAre(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return printable.Count(int(n), thing) + " are"
}

// checkConditions checks a custom resource by the common conditions, as kstatus does. A
// custom resource without conditions is ready: many never have any.
func checkConditions(object *unstructured.Unstructured) Verdict {
	o := liveObject(object.Object)
	if o.isBehindGeneration() {
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

// These rules are for extensions of the API server: it must accept them, and reach their
// servers.

// checkDefinition checks NamesAccepted, too: if another definition has the new names of a
// definition, the API server continues to serve the old names.
func checkDefinition(o liveObject, _ Related) Verdict {
	names, established := o.condition("NamesAccepted"), o.condition("Established")
	switch {
	case names.isFalse():
		return waiting("its names are not accepted: %s", names.messageOr("another definition has them"))
	case !established.isTrue():
		return waiting("it is not established: %s", established.messageOr("the API server has not seen it yet"))
	default:
		return ready()
	}
}

func checkNamespace(o liveObject, _ Related) Verdict {
	switch phase := o.text("status", "phase"); phase {
	case "Active":
		return ready()
	case "":
		return waiting("it has no phase yet")
	default:
		return waiting("it is in phase %s", phase)
	}
}

// checkAPIService checks an APIService with a Service. A local one is always ready.
func checkAPIService(o liveObject, _ Related) Verdict {
	isLocal := len(kinds.CalledServices(&unstructured.Unstructured{Object: o})) == 0
	available := o.condition("Available")
	if isLocal || available.isTrue() {
		return ready()
	}
	return waiting("it is not available: %s", available.messageOr("the API server has not tried it yet"))
}

// checkWebhooks checks the Services of webhooks. Webhooks with a URL are outside of the
// cluster, and are not checked.
func checkWebhooks(o liveObject, related Related) Verdict {
	var silent []string
	for _, service := range kinds.CalledServices(&unstructured.Unstructured{Object: o}) {
		if !related.Serving[service] {
			silent = append(silent, service.String())
		}
	}
	switch len(silent) {
	case 0:
		return ready()
	case 1:
		return waiting("nothing serves Service %s yet", silent[0])
	default:
		return waiting("nothing serves the Services %s yet", strings.Join(silent, ", "))
	}
}
