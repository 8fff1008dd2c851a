package healthcheck_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/capi/healthcheck"
	"github.com/runlevel/runlevel/internal/machines/capi/machineset"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// TestSetReplacesAnUnhealthyMachine: the controllers of a set of two simulated machines stop before the health check
// marks one, and the health check stops after that. All start again, and replace that machine, once; the other one
// stays.
func TestSetReplacesAnUnhealthyMachine(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	set := &clusterv1.MachineSet{ObjectMeta: w.Meta("web")}
	set.Spec = clusterv1.MachineSetSpec{ClusterName: "c", Replicas: ptr.To[int32](2)}
	set.Spec.Selector.MatchLabels = map[string]string{"role": "web"}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Spec = machinetest.MachineSpec()
	w.MustCreate(&v1alpha1.KwokMachineTemplate{ObjectMeta: w.Meta("small")},
		&v1alpha1.KwokConfigTemplate{ObjectMeta: w.Meta("plain")}, set, w.newCheck())
	makesMachines := func(m ctrl.Manager) error {
		return errors.Join(machineset.SetupWithManager(m, machineset.Options{}), kwok.SetupWithManager(m),
			kwok.SetupConfigsWithManager(m),
			capi.SetupWithManager(t.Context(), m, capi.Options{}))
	}
	run := func(setUp func(ctrl.Manager) error) (stop func()) {
		return stage.ManageIn(t, w.Namespace, stage.Sandbox(t).Config, setUp)
	}
	stop := run(makesMachines)
	awaitReady := func() {
		t.Helper()
		machinetest.Await(w, w, set, client.ObjectKeyFromObject(set), func(set *clusterv1.MachineSet) bool {
			return ptr.Deref(set.Status.ReadyReplicas, 0) == 2 && ptr.Deref(set.Status.Replicas, 0) == 2
		})
	}
	awaitReady()
	var machines clusterv1.MachineList
	w.MustList(&machines)
	broken, other := &machines.Items[0], &machines.Items[1]
	stop()

	w.setBroken(broken.Status.NodeRef.Name, corev1.ConditionTrue)
	stop = w.manage()
	w.awaitCondition(broken.Name, ownerDoes, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
	stop()

	run(func(m ctrl.Manager) error {
		return errors.Join(makesMachines(m), healthcheck.SetupWithManager(t.Context(), m))
	})
	w.AwaitGone(broken)
	awaitReady()
	w.awaitHealthy(w.newCheck(), 2, 2)
	w.MustList(&machines)
	isLeft := false
	for _, m := range machines.Items {
		isLeft = isLeft || m.UID == other.UID
	}
	if len(machines.Items) != 2 || !isLeft {
		t.Errorf("of 2 machines, the healthy one is left: %t; there are %d", isLeft, len(machines.Items))
	}
}
