package manager_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/hostpods"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A heldStage is a stage of deletion at which machines stay until they are released.
type heldStage struct {
	name    string
	hooks   machinev1beta1.LifecycleHooks
	isThere func(*machinev1beta1.Machine) bool // whether a machine reports this stage
	release func(s *shippedScene, machine string)
}

var heldStages = []heldStage{{
	name: "hooked", hooks: hooksOf("Hold", ""),
	isThere: func(m *machinev1beta1.Machine) bool {
		return names(m, machinev1beta1.MachineDrainable, machinev1beta1.LifecycleHook{Name: "Hold"})
	},
	release: func(s *shippedScene, machine string) { s.removeHook(machine, "Hold") },
}, {
	name: "draining",
	isThere: func(m *machinev1beta1.Machine) bool {
		return names(m, machinev1beta1.MachineDrained,
			machinev1beta1.LifecycleHook{Name: "PodDisruptionBudget " + m.Name})
	},
	release: func(s *shippedScene, machine string) {
		s.delete(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      machine,
		}})
	},
}, {
	name: "drained", hooks: hooksOf("", "Hold"),
	isThere: isDrainedAndHeld("Hold"),
	release: func(s *shippedScene, machine string) { s.removeHook(machine, "Hold") },
}, {
	name: "ending",
	isThere: func(m *machinev1beta1.Machine) bool {
		return hasCondition(m, machinev1beta1.InstanceExistsCondition, corev1.ConditionTrue) &&
			strings.Contains(fmt.Sprint(m.Status.Conditions), "InstanceTerminating")
	},
	release: func(s *shippedScene, machine string) { s.keepInfrastructure(machine, false) },
}}

// keepInfrastructure blocks or allows the deletion of the infrastructure of a machine.
func (s *shippedScene) keepInfrastructure(machine string, isKept bool) {
	s.t.Helper()
	infrastructure := &v1alpha1.KwokMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault,
		Name:      machine,
	}}
	patch := fmt.Appendf(nil, `{"spec":{"neverDeletes":%t}}`, isKept)
	s.must(s.Patch(s.t.Context(), infrastructure, client.RawPatch("application/merge-patch+json", patch)))
}

// hold deletes machines that are held at each of the stages, some at each, and waits until they report so.
func (s *shippedScene) hold(ofEach int) {
	s.t.Helper()
	s.each(ofEach*len(heldStages), func(i int) error {
		name, stage := fmt.Sprintf("%s-%d", heldStages[i%len(heldStages)].name, i/len(heldStages)),
			heldStages[i%len(heldStages)]
		return s.Create(s.t.Context(), newMachine(name, 0, stage.hooks))
	})
	s.eachHeld(func(machine string, stage heldStage) {
		s.awaitMachine(machine, isRunning)
		switch stage.name {
		case "draining":
			s.populate(machine)
		case "ending":
			s.keepInfrastructure(machine, true)
		}
		s.deleteMachine(machine)
	})
	s.eachHeld(func(machine string, stage heldStage) { s.awaitMachine(machine, stage.isThere) })
}

// populate runs a pod on the node of a machine. A budget of the machine's name forbids its eviction.
func (s *shippedScene) populate(machine string) {
	s.t.Helper()
	pod := newPod(machine, machine)
	pod.Labels["budget"] = machine
	s.must(s.Create(s.t.Context(), pod))
	s.must(s.Create(s.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: machine},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		},
	}))
}

// eachHeld calls a function for each existing machine.
func (s *shippedScene) eachHeld(do func(machine string, stage heldStage)) {
	s.t.Helper()
	for _, m := range s.machines() {
		for _, stage := range heldStages {
			if strings.HasPrefix(m.Name, stage.name) {
				do(m.Name, stage)
			}
		}
	}
}

// checkHeld checks that all remaining machines are in the stage where they were held, with their infrastructure and
// Node.
func (s *shippedScene) checkHeld() {
	s.t.Helper()
	s.eachHeld(func(machine string, stage heldStage) {
		s.awaitMachine(machine, stage.isThere)
		if stage.name != "ending" && !s.isWhole(machine) {
			s.t.Errorf("%s ends although it is held", machine)
		}
	})
}

// finish releases all machines, and checks their histories.
func (s *shippedScene) finish(machines int) {
	s.t.Helper()
	s.eachHeld(func(machine string, stage heldStage) { stage.release(s, machine) })
	s.eachHeld(func(machine string, _ heldStage) { s.awaitGone(machine) })
	if histories := s.checkHistories(machines, inDefault...); len(histories) != machines {
		s.t.Errorf("the audit log contains %d machines, not of %d", len(histories), machines)
	}
}

// awaitProcesses waits until the processes of the controller are as wanted.
func (s *shippedScene) awaitProcesses(wanted func([]hostpods.HostProcess) bool) []hostpods.HostProcess {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	processes, err := s.pods.Await(ctx, wanted)
	s.must(err)
	return processes
}

// TestUpdateDuringDeletions updates the payload, and with it the controller, while machines are at all stages of their
// deletion. One of each stage is let go while the successor already waits for the Lease.
func TestUpdateDuringDeletions(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newShippedScene(t)
	s.hold(5)
	updated := make(chan error, 1)
	go func() { updated <- s.apply("1.0.1") }()
	s.awaitProcesses(func(all []hostpods.HostProcess) bool { return len(all) == 2 && all[0].PID*all[1].PID != 0 })
	s.eachHeld(func(machine string, stage heldStage) {
		if machine == stage.name+"-0" {
			stage.release(s, machine)
		}
	})
	s.must(<-updated)
	awaitOperator(t, s, "1.0.1", configv1.OperatorAvailable, configv1.ConditionTrue, "")
	for _, stage := range heldStages {
		s.awaitGone(stage.name + "-0")
	}
	s.checkHeld()
	s.finish(5 * len(heldStages))
	if ready, err := s.pods.AwaitReady(t.Context(), 1); err != nil || ready[0].Restarts > 0 {
		t.Errorf("the new controller was started again: %+v, %v", ready, err)
	}
}

// TestAPIServerRestartsDuringDeletions kills the API server under the controller: for a moment, and until the
// controller has lost its Lease.
func TestAPIServerRestartsDuringDeletions(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newShippedScene(t)
	s.hold(3)
	s.must(s.control.Kill(sandbox.APIServer))
	s.must(s.control.Resume(t.Context(), sandbox.APIServer))
	for _, stage := range heldStages {
		stage.release(s, stage.name+"-0")
		s.awaitGone(stage.name + "-0")
	}
	s.checkHeld()

	before := s.awaitProcesses(func(all []hostpods.HostProcess) bool { return len(all) == 1 && all[0].PID != 0 })[0]
	s.must(s.control.Kill(sandbox.APIServer))
	s.awaitProcesses(func(all []hostpods.HostProcess) bool {
		return all[0].Restarts > before.Restarts && all[0].PID != 0
	})
	awaitProbe(t, before.Address+":8080/healthz", "ok") // it lives, and has nothing to work on
	awaitProbe(t, before.Address+":8080/readyz", "[-]caches failed")
	s.must(s.control.Resume(t.Context(), sandbox.APIServer))
	// The restarts are counted now: on a busy machine the Lease may be lost once more later.
	if after := s.pods.Processes()[0]; after.Restarts != before.Restarts+1 {
		t.Errorf("the controller was started again %d times, which is to wait for the API server instead",
			after.Restarts-before.Restarts)
	}
	s.awaitLeader(before.Pod)
	s.checkHeld()
	s.finish(3 * len(heldStages))
}

// awaitLeader waits until a process of a pod has the Lease.
func (s *shippedScene) awaitLeader(pod string) {
	s.t.Helper()
	key := client.ObjectKey{Namespace: manager.DefaultNamespace, Name: "machine-controller"}
	machinetest.Await(s.t, s, &coordinationv1.Lease{}, key, func(l *coordinationv1.Lease) bool {
		holder := ptr.Deref(l.Spec.HolderIdentity, "")
		return strings.HasPrefix(holder, pod) && l.Spec.RenewTime != nil &&
			time.Since(l.Spec.RenewTime.Time) < time.Minute
	})
}
