package healthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/runlevel/runlevel/internal/machines/remediation"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func running(edits ...func(*machinev1beta1.Machine)) *machinev1beta1.Machine {
	machine := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	machine.Status.NodeRef = &corev1.ObjectReference{Name: "n"}
	for _, edit := range edits {
		edit(machine)
	}
	return machine
}

func starting(since time.Duration) *machinev1beta1.Machine {
	updated := ago(since)
	return running(func(m *machinev1beta1.Machine) { m.Status.NodeRef, m.Status.LastUpdated = nil, &updated })
}

func ready(status corev1.ConditionStatus, since time.Duration) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type:               corev1.NodeReady,
		Status:             status,
		LastTransitionTime: ago(since),
	}}
	return node
}

func TestExamine(t *testing.T) {
	spec := machinev1beta1.MachineHealthCheckSpec{UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: 5 * time.Minute}},
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Timeout: metav1.Duration{Duration: time.Minute}},
	}}
	unlimited := *spec.DeepCopy()
	unlimited.NodeStartupTimeout = &metav1.Duration{}
	for name, test := range map[string]struct {
		target checkedMachine
		spec   *machinev1beta1.MachineHealthCheckSpec
		want   verdict
	}{
		"a ready node": {
			target: checkedMachine{running(), ready(corev1.ConditionTrue, time.Hour)},
			want:   verdict{isHealthy: true},
		},
		"a node that fell silent": {
			target: checkedMachine{running(), ready(corev1.ConditionUnknown, time.Minute)},
			want:   verdict{again: 4*time.Minute + time.Second},
		},
		"a timeout ends at the moment": {
			target: checkedMachine{running(), ready(corev1.ConditionFalse, time.Minute)},
			want:   verdict{again: time.Second},
		},
		"a node silent for too long": {
			target: checkedMachine{running(), ready(corev1.ConditionUnknown, 5*time.Minute+time.Second)},
			want:   verdict{unhealthy: "its node n has had Ready=Unknown for more than 5m0s"},
		},
		"a missing node": {
			target: checkedMachine{machine: running()},
			want:   verdict{unhealthy: "its node n does not exist"},
		},
		"a Machine without a node": {
			target: checkedMachine{machine: starting(time.Minute)},
			want:   verdict{again: 9*time.Minute + time.Second},
		},
		"no node for too long": {
			target: checkedMachine{machine: starting(11 * time.Minute)},
			want:   verdict{unhealthy: "it has no node after 10m0s"},
		},
		"no node, and no limit":    {target: checkedMachine{machine: starting(time.Hour)}, spec: &unlimited},
		"a Machine without status": {target: checkedMachine{machine: &machinev1beta1.Machine{}}},
		"a Machine that has failed": {
			target: checkedMachine{running(phase(machinev1beta1.PhaseFailed)), ready(corev1.ConditionTrue, time.Hour)},
			want:   verdict{unhealthy: "its phase is Failed"},
		},
		"a Machine being deleted": {
			target: checkedMachine{running(markDeleted), ready(corev1.ConditionTrue, time.Hour)},
		},
		"a Machine under external remediation": {target: checkedMachine{running(func(m *machinev1beta1.Machine) {
			m.Annotations = map[string]string{ExternalRemediationAnnotation: ""}
		}), ready(corev1.ConditionTrue, time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.spec == nil {
				test.spec = &spec
			}
			if got := examine(test.target, *test.spec, now); got != test.want {
				t.Errorf("found %+v,\nwant  %+v", got, test.want)
			}
		})
	}
}

func phase(phase string) func(*machinev1beta1.Machine) {
	return func(m *machinev1beta1.Machine) { m.Status.Phase = &phase }
}

func markDeleted(m *machinev1beta1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: now} }

func TestStatusOfAStorm(t *testing.T) {
	limit := intstr.FromString("40%")
	check := &machinev1beta1.MachineHealthCheck{Spec: machinev1beta1.MachineHealthCheckSpec{MaxUnhealthy: &limit}}
	check.Status = nextStatus(check, remediation.Census{Machines: 40, Healthy: 20, Most: 16}, now)
	want := []machinev1beta1.Condition{{
		Type: "RemediationAllowed", Status: "False", Severity: "Warning", Reason: "TooManyUnhealthy",
		LastTransitionTime: metav1.NewTime(now),
		Message: "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy " +
			"(total: 40, unhealthy: 20, maxUnhealthy: 40%)",
	}}
	if diff := cmp.Diff(want, check.Status.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if repeated := nextStatus(check, remediation.Census{Machines: 40, Healthy: 20, Most: 16},
		now.Add(time.Hour)); !cmp.Equal(repeated, check.Status) {
		t.Errorf("status of the same census (-want +got):\n%s", cmp.Diff(check.Status, repeated))
	}
	check.Status = nextStatus(check, remediation.Census{Machines: 40, Healthy: 25, Most: 16}, now.Add(time.Hour))
	if got := check.Status; got.RemediationsAllowed != 1 || got.Conditions[0].Status != "True" ||
		got.Conditions[0].Reason != "" {
		t.Errorf("after the storm: got %+v, want one remediation allowed, and the first condition True", got)
	}
}
