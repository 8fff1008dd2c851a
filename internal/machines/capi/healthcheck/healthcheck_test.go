package healthcheck_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	succeeded = clusterv1.MachineHealthCheckSucceededCondition
	ownerDoes = clusterv1.MachineOwnerRemediatedCondition
)

// While more machines are unhealthy than the health check allows, they are named and not remediated; when one heals,
// the others are.
func TestTooManyUnhealthy(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		w.addMachine(name)
	}
	for _, name := range names[:3] {
		w.setBroken(w.nodeOf(name), corev1.ConditionTrue)
	}
	check := w.newCheck()
	check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.FromString("40%"))
	w.MustCreate(check)
	w.manage()
	w.awaitHealthy(check, 2, 5)
	const message = "Remediation is not allowed, the number of not started or unhealthy machines exceeds " +
		"maxUnhealthy (total: 5, unhealthy: 3, maxUnhealthy: 40%)"
	found := w.awaitCheck(check, func(s clusterv1.MachineHealthCheckStatus) bool {
		return meta.IsStatusConditionFalse(s.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
	})
	allowed := meta.FindStatusCondition(found.Status.Conditions,
		clusterv1.MachineHealthCheckRemediationAllowedCondition)
	if allowed.Reason != clusterv1.MachineHealthCheckTooManyUnhealthyReason || allowed.Message != message ||
		*found.Status.RemediationsAllowed != 0 {
		t.Errorf("the health check has %+v, and allows %d", allowed, *found.Status.RemediationsAllowed)
	}
	w.AwaitEvent(check.Name, "RemediationRestricted", message)
	reported := w.awaitCondition("a", succeeded, clusterv1.MachineHealthCheckUnhealthyNodeReason)
	if reported.Message != "Health check failed:\n  * Condition Broken on Node is reporting status True with reason "+
		"Tested for more than 1s" {
		t.Errorf("the message of an unhealthy machine is %q", reported.Message)
	}
	for _, name := range names {
		if remediated := w.condition(name, ownerDoes); remediated.Type != "" {
			t.Errorf("machine %s is remediated although too many are unhealthy: %+v", name, remediated)
		}
	}

	w.setBroken(w.nodeOf("a"), corev1.ConditionFalse)
	for _, name := range []string{"b", "c"} {
		if marked := w.awaitCondition(name, ownerDoes,
			clusterv1.MachineOwnerRemediatedWaitingForRemediationReason); marked.Status != metav1.ConditionFalse {
			t.Errorf("machine %s is marked by %+v", name, marked)
		}
		w.AwaitEvent(name, "MachineMarkedUnhealthy",
			"Machine "+w.Namespace+"/"+name+" has been marked as unhealthy by "+w.Namespace+"/web")
	}
	w.awaitCondition("a", succeeded, clusterv1.MachineHealthCheckSucceededReason)
	for _, name := range []string{"a", "d", "e"} {
		if remediated := w.condition(name, ownerDoes); remediated.Type != "" {
			t.Errorf("healthy machine %s is remediated: %+v", name, remediated)
		}
	}
	w.MustGet(check)
	if check.Labels[clusterv1.ClusterNameLabel] != "c" || len(check.OwnerReferences) != 1 ||
		check.OwnerReferences[0].Kind != "Cluster" {
		t.Errorf("the health check has labels %v and owners %v", check.Labels, check.OwnerReferences)
	}
}

// Machines are remediated while the number of unhealthy ones is in a range.
func TestUnhealthyInRange(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		w.addMachine(name)
	}
	check := w.newCheck()
	check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[2-2]"
	w.MustCreate(check)
	w.manage()
	w.awaitHealthy(check, 3, 3)
	w.setBroken(w.nodeOf("a"), corev1.ConditionTrue)
	w.awaitCondition("a", succeeded, clusterv1.MachineHealthCheckUnhealthyNodeReason)
	if remediated := w.condition("a", ownerDoes); remediated.Type != "" {
		t.Errorf("condition for the owner of one unhealthy machine: got %+v, want none", remediated)
	}
	w.setBroken(w.nodeOf("b"), corev1.ConditionTrue)
	w.awaitCondition("a", ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
	w.awaitCondition("b", ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
}

// TestReasons checks each reason why a machine is unhealthy, and the annotations that exclude it from remediation.
func TestReasons(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	for _, name := range []string{"nodeless", "annotated", "conditioned", "skipped", "paused", "deleted"} {
		w.addMachine(name)
	}
	w.addMachineWithoutNode("late")
	check := w.newCheck()
	check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](2)
	check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
		{Type: "DiskFailed", Status: metav1.ConditionTrue, TimeoutSeconds: ptr.To[int32](1)},
	}
	w.MustCreate(check)
	w.manage()
	w.awaitHealthy(check, 6, 7)

	w.annotate("skipped", clusterv1.MachineSkipRemediationAnnotation)
	w.annotate("paused", clusterv1.PausedAnnotation)
	w.awaitHealthy(check, 4, 5)
	w.MustPatch(&clusterv1.Machine{ObjectMeta: w.Meta("deleted")}, `{"metadata":{"finalizers":["example.com/held"]}}`)
	w.MustDelete(&clusterv1.Machine{ObjectMeta: w.Meta("deleted")})
	for _, name := range []string{"nodeless", "skipped", "paused", "deleted"} {
		w.MustDelete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.nodeOf(name)}})
	}
	w.annotate("annotated", clusterv1.RemediateMachineAnnotation)
	w.MustPatchStatus(&clusterv1.Machine{ObjectMeta: w.Meta("conditioned")},
		`{"status":{"conditions":[{"type":"DiskFailed","status":"True","reason":"Tested","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)

	for name, want := range map[string]metav1.Condition{
		"nodeless": {
			Reason:  clusterv1.MachineHealthCheckNodeDeletedReason,
			Message: "Health check failed:\n  * Node " + w.nodeOf("nodeless") + " has been deleted",
		},
		"late": {
			Reason:  clusterv1.MachineHealthCheckNodeStartupTimeoutReason,
			Message: "Health check failed:\n  * Node failed to report startup in 2s",
		},
		"annotated": {Reason: clusterv1.MachineHealthCheckHasRemediateAnnotationReason,
			Message: "Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation"},
		"conditioned": {Reason: clusterv1.MachineHealthCheckUnhealthyMachineReason,
			Message: "Health check failed:\n  * Condition DiskFailed on Machine is reporting status True with reason " +
				"Tested for more than 1s"},
	} {
		if got := w.awaitCondition(name, succeeded, want.Reason); got.Message != want.Message ||
			got.Status != metav1.ConditionFalse {
			t.Errorf("%s: %+v", name, got)
		}
		w.awaitCondition(name, ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
	}
	w.awaitCondition("deleted", succeeded, clusterv1.MachineHealthCheckNodeDeletedReason)
	for _, name := range []string{"skipped", "paused", "deleted"} {
		if remediated := w.condition(name, ownerDoes); remediated.Type != "" {
			t.Errorf("machine %s is remediated: %+v", name, remediated)
		}
	}
	w.MustPatch(&clusterv1.Machine{ObjectMeta: w.Meta("deleted")}, `{"metadata":{"finalizers":null}}`)
}

func (f *fixture) annotate(machine, key string) {
	f.Helper()
	f.MustPatch(&clusterv1.Machine{ObjectMeta: f.Meta(machine)}, `{"metadata":{"annotations":{%q:""}}}`, key)
}

// A pause of the Cluster stops all checks, and machines are not unhealthy while its infrastructure is not ready.
func TestPausesAndClustersThatStart(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addMachine("a")
	cluster := &clusterv1.Cluster{ObjectMeta: w.Meta("c")}
	w.MustPatch(cluster, `{"spec":{"paused":true}}`)
	check := w.newCheck()
	w.MustCreate(check)
	w.setBroken(w.nodeOf("a"), corev1.ConditionTrue)
	w.manage()
	isPaused := func(want bool) {
		t.Helper()
		w.Eventually("the condition Paused is written", func() bool {
			w.MustGet(check)
			return meta.IsStatusConditionPresentAndEqual(check.Status.Conditions, clusterv1.PausedCondition,
				map[bool]metav1.ConditionStatus{true: "True", false: "False"}[want])
		})
	}
	isPaused(true)
	if reported := w.condition("a", succeeded); reported.Type != "" {
		t.Errorf("a paused health check has reported %+v", reported)
	}
	infrastructure := func(status, since string) {
		w.MustPatchStatus(cluster,
			`{"status":{"conditions":[{"type":"InfrastructureReady","status":%q,"reason":"Tested","message":"","lastTransitionTime":%q}]}}`, status, since)
	}
	infrastructure("False", "2026-01-01T00:00:00Z")
	w.MustPatch(cluster, `{"spec":{"paused":false}}`)
	isPaused(false)
	w.awaitHealthy(check, 1, 1)
	infrastructure("True", "2026-01-01T00:01:00Z")
	w.awaitCondition("a", ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
}

// A health check that Cluster API's admission refuses remediates no machine, and is reported.
func TestInvalidChecks(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.addMachine("a")
	w.setBroken(w.nodeOf("a"), corev1.ConditionTrue)
	check := w.newCheck()
	check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[3-1]"
	w.MustCreate(check)
	w.manage()
	awaitInvalid := func(message string) {
		t.Helper()
		w.awaitCheck(check, func(s clusterv1.MachineHealthCheckStatus) bool {
			allowed := meta.FindStatusCondition(s.Conditions, clusterv1.MachineHealthCheckRemediationAllowedCondition)
			return allowed.Status == metav1.ConditionFalse && allowed.Reason == "InvalidSpec" &&
				allowed.Message == message
		})
	}
	awaitInvalid("spec.remediation.triggerIf.unhealthyInRange is [3-1]: write a range such as [1-3]: the second " +
		"number is less than the first")
	w.MustPatch(check,
		`{"spec":{"remediation":{"triggerIf":{"unhealthyInRange":null,"unhealthyLessThanOrEqualTo":"many"}}}}`)
	awaitInvalid(`spec.remediation.triggerIf.unhealthyLessThanOrEqualTo: write a number, or a percentage such as 40%: "many" is neither a number nor a percentage`)
	w.MustPatch(check, `{"spec":{"remediation":null,"selector":{"matchLabels":null}}}`)
	awaitInvalid("spec.selector: it is empty: write labels of the machines to check")
	if reported := w.condition("a", succeeded); reported.Type != "" {
		t.Errorf("an invalid health check has reported %+v", reported)
	}
	w.MustPatch(check, `{"spec":{"selector":{"matchLabels":{"role":"web"}}}}`)
	w.awaitCondition("a", ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
}
