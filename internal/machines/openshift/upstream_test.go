package openshift_test

import (
	"errors"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/machines/openshift"
)

// TestMomentsOfHooks makes the moments of a machine whose hooks are removed one after the other.
func TestMomentsOfHooks(t *testing.T) {
	s := newScenario(t)
	s.start(openshift.Options{})
	node := s.addNode("a1", nil)
	s.addPod("db", node, nil)
	web := s.NewPod("web", node)
	web.Spec.TerminationGracePeriodSeconds = ptr.To(int64(0)) // it ends at once, so that no moment has it terminating
	s.RunPod(web)
	budget := s.AddBudget("db", "db")
	m := s.addMachine("a1", node, machinev1beta1.LifecycleHooks{
		PreDrain: []machinev1beta1.LifecycleHook{{Name: "MigrateApp", Owner: "app-op"},
			{Name: "Other", Owner: "other-op"}},
		PreTerminate: []machinev1beta1.LifecycleHook{{Name: "WaitForStorageDetach", Owner: "storage-op"}},
	})
	s.compareMoment("01-running", "a1")
	s.MustDelete(m)
	s.compareMoment("02-pre-drain", "a1")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Other","owner":"other-op"}]}}}`)
	s.compareMoment("03-pre-drain-one", "a1")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":null}}}`)
	s.compareMoment("04-draining-budget", "a1")
	s.MustDelete(budget)
	s.compareMoment("05-pre-terminate", "a1")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":{"preDrain":[{"name":"Late","owner":"late-op"}]}}}`)
	s.compareMoment("06-late-hook", "a1")
	s.MustPatch(m, `{"spec":{"lifecycleHooks":null}}`)
	s.compareMoment("07-gone", "a1")
}

// TestMomentsOfSkippedDrains makes the moments of machines that have both hooks and are not drained.
func TestMomentsOfSkippedDrains(t *testing.T) {
	hooks := machinev1beta1.LifecycleHooks{
		PreDrain:     []machinev1beta1.LifecycleHook{{Name: "HoldDrain", Owner: "hold-op"}},
		PreTerminate: []machinev1beta1.LifecycleHook{{Name: "HoldEnd", Owner: "hold-op"}},
	}
	t.Run("08-excluded", func(t *testing.T) {
		s := newScenario(t)
		s.start(openshift.Options{})
		m := s.addMachine("a2", s.addNode("a2", nil), hooks)
		s.MustPatch(m, `{"metadata":{"annotations":{"machine.openshift.io/exclude-node-draining":""}}}`)
		s.MustDelete(m)
		s.compareMoment("08-excluded", "a2")
	})
	t.Run("09-without-a-node", func(t *testing.T) {
		s := newScenario(t)
		s.start(openshift.Options{})
		s.MustDelete(s.addMachine("a3", nil, hooks))
		s.compareMoment("09-without-a-node", "a3")
	})
}

// TestMomentsOfTheActuator makes the moments of machines whose infrastructure does not go when it is asked to.
func TestMomentsOfTheActuator(t *testing.T) {
	const after = 7 * time.Second
	busy := errors.New("the cloud is busy")
	again := &infra.RetryError{After: after, Err: busy}
	last := &infra.RetryError{After: time.Hour, Err: busy} // there are no more calls then
	for name, answers := range map[string][]error{
		"10-requeue-after": {again, again, last},
		"11-call-fails":    {busy, busy, last},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t)
			s.start(openshift.Options{})
			m := s.addMachine("a4", s.addNode("a4", nil), machinev1beta1.LifecycleHooks{})
			s.provider.configure(func() { s.provider.deletes = answers })
			s.MustDelete(m)
			s.compareMoment(name, "a4")
			calls := s.provider.callsOf("delete")
			for i, answer := range answers[:2] {
				if gap := calls[i+1].at.Sub(calls[i].at); answer == error(again) && gap < after {
					t.Errorf("call %d comes %s after the one before it, want %s", i+2, gap, after)
				}
			}
		})
	}
}

// TestMomentsOfTheControlPlane makes the moments of two machines of the control plane that are deleted at once.
func TestMomentsOfTheControlPlane(t *testing.T) {
	s := newScenario(t)
	s.haveControlPlane()
	s.start(openshift.Options{})
	label := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	node, two := s.addNode("cp1", label), s.addNode("cp2", label)
	s.MustPatch(s.addPod("w1", node, nil), `{"metadata":{"finalizers":["example.com/hold"]}}`)
	s.addPod("w2", two, nil)
	first := s.addMachine("c1", node, machinev1beta1.LifecycleHooks{})
	second := s.addMachine("c2", two, machinev1beta1.LifecycleHooks{})
	s.MustDelete(first)
	s.compareMoment("12-control-plane-first", "c1")
	s.MustDelete(second)
	s.compareMoment("13-control-plane-second", "c2")
}
