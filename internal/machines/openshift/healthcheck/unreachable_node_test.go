package healthcheck_test

import (
	"errors"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/openshift"
	"github.com/runlevel/runlevel/internal/machines/openshift/healthcheck"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// If a node becomes unreachable, its machine is deleted after the timeout, and not before. A hook holds the deletion
// like any other.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	f := shared.NewFixture(t)
	owner := addOwner(f)
	const timeout = 5 * time.Second
	check := &machinev1beta1.MachineHealthCheck{
		ObjectMeta: f.Meta("web"),
		Spec: machinev1beta1.MachineHealthCheckSpec{UnhealthyConditions: []machinev1beta1.UnhealthyCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Timeout: metav1.Duration{Duration: timeout}},
		}},
	}
	f.MustCreate(check)
	f.Manage(func(mgr ctrl.Manager) error {
		return errors.Join(
			openshift.SetupWithManager(t.Context(), mgr, openshift.Options{LongestWait: time.Second}),
			healthcheck.SetupWithManager(t.Context(), mgr),
		)
	})
	m := addMachine(f, "web-0", owner, func(m *machinev1beta1.Machine) {
		m.Spec.ProviderSpec.Value = &runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"infrastructure.runlevel.dev/v1alpha1","kind":"ExternalMachine"}`),
		}
		m.Spec.LifecycleHooks.PreDrain = []machinev1beta1.LifecycleHook{{Name: "Fence", Owner: "test"}}
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.NodeRef.Name}}
	awaitReady := func(status corev1.ConditionStatus) (since time.Time) {
		t.Helper()
		machinetest.Await(f, f, node, client.ObjectKeyFromObject(node), func(n *corev1.Node) bool {
			for _, nodeCondition := range n.Status.Conditions {
				if nodeCondition.Type == corev1.NodeReady && nodeCondition.Status == status {
					since = nodeCondition.LastTransitionTime.Time
				}
			}
			return !since.IsZero()
		})
		return since
	}
	awaitReady(corev1.ConditionTrue)
	machinetest.Await(f, f, check, client.ObjectKeyFromObject(check),
		func(check *machinev1beta1.MachineHealthCheck) bool {
			return check.Status.CurrentHealthy != nil && *check.Status.CurrentHealthy == 1
		})

	f.Must(sandbox.SilenceNode(t.Context(), shared.Kubernetes(t), node.Name))
	silent := awaitReady(corev1.ConditionUnknown)
	m = f.AwaitMachine("web-0", func(m *machinev1beta1.Machine) bool {
		return m.DeletionTimestamp != nil
	})
	if after := m.DeletionTimestamp.Sub(silent); after < timeout {
		t.Errorf("the machine is deleted %s after its node fell silent, want %s", after, timeout)
	}
	m = f.AwaitMachine("web-0", func(m *machinev1beta1.Machine) bool {
		return m.Status.Phase != nil && *m.Status.Phase == machinev1beta1.PhaseDeleting
	})
	f.MustGet(node)
	if node.Spec.Unschedulable || len(m.Status.Conditions) == 0 ||
		m.Status.Conditions[0].Reason != machinev1beta1.MachineHookPresent {
		t.Errorf("a hook holds the machine, its node is cordoned: %t, and its conditions are %+v",
			node.Spec.Unschedulable, m.Status.Conditions)
	}
	f.MustPatch(m, `{"spec":{"lifecycleHooks":null}}`)
	f.AwaitGone(m)
	f.AwaitGone(node)
}
