package sandbox_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// TestPodsRecoverFromMissedHeartbeats stops kwok, so that its node misses heartbeats, as on a loaded machine or after a
// laptop's sleep. When kwok continues, the node and its pods become ready again, as with a kubelet.
func TestPodsRecoverFromMissedHeartbeats(t *testing.T) {
	t.Parallel()
	own := sandboxtest.New(sandbox.Options{NodeGrace: 15 * time.Second})
	s := own.Sandbox(t)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop:", err)
		}
	})
	running := createDeployment(t, own, 1, nil) + "/web"
	crashing := createDeployment(t, own, 8, map[string]string{"pod": "crash", "run-for": "1h"}) + "/web" // runs 1h
	haveReady := func(isReady bool) {
		t.Helper()
		for _, key := range []string{running, crashing} {
			sandboxtest.Await(t, own, deployments, key, func(d *appsv1.Deployment) bool {
				return d != nil && d.Status.ReadyReplicas == map[bool]int32{true: *d.Spec.Replicas}[isReady]
			})
		}
	}
	haveReady(true)

	kwok := processOf(t, s, sandbox.Kwok)
	if err := syscall.Kill(kwok, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	haveReady(false)
	if err := syscall.Kill(kwok, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	haveReady(true)
	sandboxtest.Await(t, own, nodes, "node-0", func(n *corev1.Node) bool {
		return n != nil && len(n.Spec.Taints) == 0 &&
			slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
	})
}

// processOf returns the process ID of a component.
func processOf(t *testing.T, s *sandbox.Sandbox, component string) int {
	t.Helper()
	state, err := sandbox.Find(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(state.Components, func(c sandbox.ComponentStatus) bool { return c.Name == component })
	if i < 0 {
		t.Fatalf("no component %s in %+v", component, state.Components)
	}
	return state.Components[i].PID
}
