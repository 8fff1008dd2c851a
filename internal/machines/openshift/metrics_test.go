package openshift_test

import (
	"errors"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra"
)

// metricValues returns the values of a metric by a label: of the machines of a scenario, or of all if they have no
// namespace.
func (s *scenario) metricValues(name, label string) map[string]float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			namespace, isOfMachine := labels["namespace"]
			if family.GetName() == name && (!isOfMachine || namespace == s.Namespace) {
				values[labels[label]] += metric.GetCounter().GetValue() +
					float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}

// TestMetricsOfAMachine causes failures of the infrastructure, and checks their counts until the machines are deleted.
func TestMetricsOfAMachine(t *testing.T) {
	s := newScenario(t)
	s.provider.invalid = &infra.InvalidError{Message: "no such size"}
	s.start(quick)
	failed := s.addMachine("failed", nil, machinev1beta1.LifecycleHooks{})
	if got := s.metricValues("mapi_instance_create_failed", "reason"); got["InvalidConfiguration"] == 0 ||
		len(got) != 1 {
		t.Errorf("failed creates by reason: got %v, want InvalidConfiguration alone", got)
	}
	s.provider.configure(func() { s.provider.invalid = nil })
	m := s.addMachine("a", s.addNode("n", nil), machinev1beta1.LifecycleHooks{})
	s.awaitMachine("a", func(m *machinev1beta1.Machine) bool {
		return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
	})
	s.provider.configure(func() { s.provider.invalid = errors.New("the cloud is away") })
	s.MustPatch(m, `{"metadata":{"labels":{"looks":"again"}}}`)
	s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionUnknown, "away")
	if got := s.metricValues("mapi_instance_update_failed", "name"); got["a"] == 0 || len(got) != 1 {
		t.Errorf("failed updates by name: got %v, want a alone", got)
	}
	s.provider.configure(func() {
		s.provider.invalid, s.provider.deletes = nil, []error{errors.New("the cloud is busy")}
		s.provider.isSlow = true
	})
	s.MustDelete(m)
	s.awaitCondition("a", machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, "to be deleted")
	if got := s.metricValues("mapi_instance_delete_failed", "reason"); got["Error"] == 0 {
		t.Errorf("failed deletes by reason: got %v, want Error", got)
	}
	phases := s.metricValues("mapi_machine_phase_transition_seconds", "phase")
	if phases[machinev1beta1.PhaseRunning] == 0 || phases[machinev1beta1.PhaseFailed] == 0 ||
		phases[machinev1beta1.PhaseDeleting] > 0 {
		t.Errorf("phase transitions: got %v, want Running and Failed, and none to Deleting", phases)
	}
	s.provider.finish()
	s.MustDelete(failed)
	s.AwaitGone(m)
	s.AwaitGone(failed)
	s.Eventually("the counts end with the machines", func() bool {
		return len(s.metricValues("mapi_instance_create_failed", "name"))+
			len(s.metricValues("mapi_instance_update_failed", "name"))+
			len(s.metricValues("mapi_instance_delete_failed", "name")) == 0
	})
}

// TestStageOfAMachine reads the stage of a deletion off a Machine alone.
func TestStageOfAMachine(t *testing.T) {
	condition := func(kind machinev1beta1.ConditionType, status corev1.ConditionStatus,
		reason string) machinev1beta1.Condition {
		return machinev1beta1.Condition{Type: kind, Status: status, Reason: reason, Message: "why"}
	}
	drained := condition(machinev1beta1.MachineDrained, corev1.ConditionTrue, "")
	both := machinev1beta1.LifecycleHooks{PreDrain: hook("one"), PreTerminate: hook("two")}
	for name, test := range map[string]struct {
		hooks      machinev1beta1.LifecycleHooks
		isExcluded bool
		conditions []machinev1beta1.Condition
		stage      deletion.Stage
		reason     string
	}{
		"a hook before the drain": {hooks: both, stage: deletion.BeforeDrain, reason: "HookPresent"},
		"excluded in spite of a hook": {
			hooks:      both,
			isExcluded: true,
			stage:      deletion.Draining,
			reason:     "DrainSkipped",
		},
		"pods end": {stage: deletion.Draining, reason: "PodsEnd"},
		"pods are refused": {
			conditions: []machinev1beta1.Condition{
				condition(machinev1beta1.MachineDrained, corev1.ConditionFalse, "DrainError"),
			},
			stage:  deletion.Draining,
			reason: "DrainError",
		},
		"a hook before the end": {
			hooks:      both,
			conditions: []machinev1beta1.Condition{drained},
			stage:      deletion.BeforeTerminate,
			reason:     "HookPresent",
		},
		"infrastructure goes": {
			conditions: []machinev1beta1.Condition{drained,
				condition(machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, deletion.InstanceTerminating)},
			stage:  deletion.Terminating,
			reason: "InfrastructureGoes",
		},
		"infrastructure is not asked": {
			conditions: []machinev1beta1.Condition{drained,
				condition(machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue, deletion.ErrorDeleting)},
			stage:  deletion.Terminating,
			reason: "InfrastructureProblem",
		},
		"infrastructure is not seen": {
			conditions: []machinev1beta1.Condition{drained,
				condition(machinev1beta1.InstanceExistsCondition, corev1.ConditionUnknown,
					machinev1beta1.ErrorCheckingProviderReason)},
			stage:  deletion.Terminating,
			reason: "InfrastructureProblem",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machinev1beta1.Machine{}
			m.Spec.LifecycleHooks, m.Status.Conditions, m.Status.NodeRef = test.hooks, test.conditions,
				&corev1.ObjectReference{Name: "n"}
			if test.isExcluded {
				m.Annotations = map[string]string{deletion.ExcludeNodeDraining: ""}
			}
			if stage, reason := deletion.StageOpenShift(m); stage != test.stage || reason != test.reason {
				t.Errorf("got stage %s, %s, want %s, %s", stage, reason, test.stage, test.reason)
			}
		})
	}
}
