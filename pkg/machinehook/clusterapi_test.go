package machinehook_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/capi"
	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/infra/kwok"
	"github.com/runlevel/runlevel/internal/machines/infra/v1alpha1"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

// The keys of hooks, as a user reads them in Cluster API's book.
const preDrain, preTerminate = "pre-drain.delete.hook.machine.cluster.x-k8s.io/",
	"pre-terminate.delete.hook.machine.cluster.x-k8s.io/"

// TestServerHookOfClusterAPI has a hook in each stage of a Machine of Cluster API, beside those of others.
func TestServerHookOfClusterAPI(t *testing.T) {
	t.Parallel()
	s := newClusterAPISite(t)
	drain, terminate := newScript(), newScript()
	before, after := drain.clusterAPIHook("migrate-app", deletion.BeforeDrain),
		terminate.clusterAPIHook("ship-logs", deletion.BeforeTerminate)
	s.serve(before)
	s.serve(after)
	m := s.addClusterAPI("m",
		map[string]string{preTerminate + "other": "admin", preDrain + "migrate-app": "its predecessor"})
	s.awaitAnnotations(m, preDrain+"migrate-app=migrate-app-operator", preTerminate+"ship-logs=ship-logs-operator",
		preTerminate+"other=admin")
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "migrate-app")
	seen := drain.acted()[0]
	if seen.NodeName != m.Name || seen.ProviderID != m.Spec.ProviderID || seen.Name != m.Name ||
		seen.Namespace != m.Namespace || len(terminate.acted()) > 0 {
		t.Errorf("got a call of the hook before the drain with %+v, and %d calls of the hook after the drain; want "+
			"the machine %s/%s on node %s with ID %s, and no call", seen, len(terminate.acted()), m.Namespace, m.Name,
			m.Name, m.Spec.ProviderID)
	}
	s.expectCordoned(m, false)
	drain.setAnswer(done)
	s.AwaitEvent(m.Name, "HookDone", "migrate-app")
	s.AwaitEvent(m.Name, "HookWaits", "ship-logs")
	s.expectCordoned(m, true)
	terminate.setAnswer(done)
	s.AwaitEvent(m.Name, "HookDone", "ship-logs")
	s.awaitAnnotations(m, preTerminate+"other=admin")
	s.MustPatch(m, `{"metadata":{"annotations":null}}`)
	s.AwaitGone(m)
}

// expectCordoned checks whether the node of a Machine takes pods.
func (f *fixture) expectCordoned(m *clusterv1.Machine, isCordoned bool) {
	f.Helper()
	node := &corev1.Node{}
	f.Must(f.Get(f.Context(), client.ObjectKey{Name: m.Name}, node))
	if node.Spec.Unschedulable != isCordoned {
		f.Errorf("the node is cordoned: %t", node.Spec.Unschedulable)
	}
}

// Two controllers agree on an order by an annotation of their own. The machine controller knows of none: both hooks
// hold the machine from the beginning, each controller is called at once, and the deletion continues when both hooks
// are removed.
func TestServerHooksOfClusterAPICoordinate(t *testing.T) {
	t.Parallel()
	const isMigrated = "shop.example/migrated"
	s := newClusterAPISite(t)
	migrate, backup := newScript(), newScript()
	first, second := migrate.clusterAPIHook("migrate-app", deletion.BeforeDrain),
		backup.clusterAPIHook("back-up", deletion.BeforeDrain)
	first.Act = func(ctx context.Context, held machinehook.HeldMachine) (machinehook.HookAnswer, error) {
		answer, err := migrate.act(ctx, held)
		if err != nil || !answer.IsDone {
			return answer, err
		}
		base := held.Object.DeepCopyObject().(client.Object)
		held.Object.GetAnnotations()[isMigrated] = "true"
		return answer, s.Patch(ctx, held.Object, client.MergeFrom(base))
	}
	second.Act = func(ctx context.Context, held machinehook.HeldMachine) (machinehook.HookAnswer, error) {
		_, err := backup.act(ctx, held)
		if held.Object.GetAnnotations()[isMigrated] == "" {
			return machinehook.HookAnswer{Message: "migrate-app is not done", After: time.Hour}, err
		}
		return machinehook.HookAnswer{IsDone: true}, err
	}
	s.serve(second)
	s.serve(first)
	m := s.addClusterAPI("m", nil)
	s.awaitAnnotations(m, preDrain+"migrate-app=migrate-app-operator", preDrain+"back-up=back-up-operator")
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "the queue has 3 entries")
	s.AwaitEvent(m.Name, "HookWaits", "migrate-app is not done")
	s.awaitAnnotations(m, preDrain+"migrate-app=migrate-app-operator", preDrain+"back-up=back-up-operator")
	s.expectCordoned(m, false)
	migrate.setAnswer(done)
	s.AwaitEvent(m.Name, "HookDone", "migrate-app")
	s.AwaitEvent(m.Name, "HookDone", "back-up") // long before the hour
	s.AwaitGone(m)
}

// No admission rejects hooks on a Machine of Cluster API being deleted: controllers must not add any.
func TestServerAddsNoClusterAPIHookDuringDeletion(t *testing.T) {
	t.Parallel()
	s, script := newClusterAPISite(t), newScript()
	h := script.clusterAPIHook("ship-logs", deletion.BeforeTerminate)
	late := s.addClusterAPI("late", map[string]string{preTerminate + "other": "admin"})
	s.MustDelete(late)
	s.serve(h)
	m := s.addClusterAPI("m", map[string]string{preTerminate + "other": "admin"})
	s.awaitAnnotations(m, preTerminate+"ship-logs=ship-logs-operator", preTerminate+"other=admin")
	s.MustDelete(m)
	s.AwaitEvent(m.Name, "HookWaits", "ship-logs")
	s.MustPatch(m, `{"metadata":{"annotations":{%q:null}}}`, preTerminate+"ship-logs")
	for _, m := range []*clusterv1.Machine{late, m} {
		s.MustPatch(m, `{"metadata":{"labels":{"nudge":"1"}}}`)
	}
	marker := s.addClusterAPI("marker", nil) // once it has the hook, the others were looked at
	s.awaitAnnotations(marker, preTerminate+"ship-logs=ship-logs-operator")
	for _, m := range []*clusterv1.Machine{late, m} {
		s.MustGet(m)
		if got := m.Annotations; got[preTerminate+"ship-logs"] != "" || got[preTerminate+"other"] != "admin" {
			t.Errorf("machine %s has the annotations %q", m.Name, got)
		}
	}
}

// clusterAPIHook returns a hook of Machines of Cluster API that asks the script.
func (s *script) clusterAPIHook(name string, stage deletion.Stage) machinehook.Hook {
	h := s.hook(name, stage)
	h.Machine = &clusterv1.Machine{}
	return h
}

// newClusterAPISite creates a namespace with a Cluster, and runs the controllers of its machines.
func newClusterAPISite(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{shared.NewFixture(t)}
	s.Manage(func(mgr ctrl.Manager) error {
		if err := kwok.SetupWithManager(mgr); err != nil {
			return err
		}
		return capi.SetupWithManager(t.Context(), mgr, capi.Options{LongestWait: time.Second})
	})
	plane := s.clusterAPIMachine("plane") // a node is only drained if there is a control plane
	plane.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: "", clusterv1.ClusterNameLabel: "shop"}
	s.MustCreate(plane)
	s.MustCreate(&clusterv1.Cluster{
		ObjectMeta: s.Meta("shop"), Spec: clusterv1.ClusterSpec{InfrastructureRef: plane.Spec.InfrastructureRef},
	})
	return s
}

// addClusterAPI creates a Machine of Cluster API, and waits until its node exists.
func (f *fixture) addClusterAPI(name string, annotations map[string]string) *clusterv1.Machine {
	f.Helper()
	m := f.clusterAPIMachine(name)
	m.Labels, m.Annotations = map[string]string{"role": "web"}, annotations
	infrastructure := &v1alpha1.KwokMachine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	infrastructure.Spec.Address = newAddress()
	f.MustCreate(infrastructure)
	f.MustCreate(m)
	f.DeleteAfterwards(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}})
	return machinetest.Await(f, f, m, client.ObjectKeyFromObject(m), func(m *clusterv1.Machine) bool {
		return m.Status.NodeRef.Name != ""
	})
}

// clusterAPIMachine returns a Machine without creating it.
func (f *fixture) clusterAPIMachine(name string) *clusterv1.Machine {
	name = f.Namespace + "-" + name
	return &clusterv1.Machine{
		ObjectMeta: f.Meta(name),
		Spec: clusterv1.MachineSpec{
			ClusterName: "shop", Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.runlevel.dev",
				Kind:     "KwokMachine",
				Name:     name,
			},
		},
	}
}

// awaitAnnotations waits until a Machine has these annotations of hooks, and no others.
func (f *fixture) awaitAnnotations(m *clusterv1.Machine, want ...string) {
	f.Helper()
	slices.Sort(want)
	machinetest.Await(f, f, m, client.ObjectKeyFromObject(m), func(m *clusterv1.Machine) bool {
		var got []string
		for key, owner := range m.Annotations {
			if strings.Contains(key, ".delete.hook.") {
				got = append(got, key+"="+owner)
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}
