package overview

import (
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/machines/drain"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// deleting is a machine being deleted; tests replace %HOOKS and %DRAINED.
const deleting = `
metadata:
  name: web-4
  namespace: shop
  deletionTimestamp: "2026-11-23T11:50:00Z"
  finalizers: [machine.machine.openshift.io, example.com/backup]
spec:
  providerID: test://web-4
  lifecycleHooks: {%HOOKS}
  providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine}}
status:
  phase: Deleting
  nodeRef: {name: node-4}
  conditions: [%DRAINED]
`

const (
	bothHooks     = `preDrain: [{name: MigrateApp, owner: app-op}, {name: Other, owner: o'op}], preTerminate: [{name: ShipLogs, owner: log-op}]`
	terminateHook = `preTerminate: [{name: ShipLogs, owner: log-op}]`
	drained       = `{type: Drained, status: "True", lastTransitionTime: "2026-11-23T11:55:00Z"}`
)

// deletedMachine returns a machine being deleted, with its node.
func deletedMachine(t *testing.T, hooks, conditions string) *openshiftMachine {
	t.Helper()
	m := &machinev1beta1.Machine{}
	text := strings.NewReplacer("%HOOKS", hooks, "%DRAINED", conditions).Replace(deleting)
	if err := yaml.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	f := newOpenshiftMachine(m, &nodeList{byName: map[string]*corev1.Node{"node-4": node}})
	f.infra.isKnown = true
	return f
}

// deletedInfrastructure returns infrastructure being deleted.
func deletedInfrastructure(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: infrastructure.runlevel.dev/v1alpha1
kind: KwokMachine
metadata: {name: web-4, namespace: shop, deletionTimestamp: "2026-11-23T11:58:00Z", finalizers: [example.com/power]}
status: {conditions: [{type: Ready, status: "False", reason: PowerOff, message: the BMC does not answer}]}
`), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestHoldsOfOpenshiftMachines(t *testing.T) {
	controlPlane := map[string]string{"node-role.kubernetes.io/control-plane": ""}
	for name, c := range map[string]struct {
		hooks, conditions string
		edit              func(*openshiftMachine)
		want              string
	}{
		"hooks before the drain, and those after it": {
			hooks: bothHooks,
			want:  "preDrain hooks MigrateApp of app-op, Other of o'op; later preTerminate hook ShipLogs of log-op",
		},
		"an excluded machine is not held by preDrain hooks": {hooks: bothHooks, edit: func(f *openshiftMachine) {
			f.machine.Annotations = map[string]string{deletion.ExcludeNodeDraining: ""}
		}, want: "the machine controller has to skip the drain; later preTerminate hook ShipLogs of log-op"},
		"pods, stuck pods first": {edit: func(f *openshiftMachine) {
			f.pods = &nodePods{holding: []drain.HeldPod{
				{Namespace: "shop", Name: "a", Hold: drain.Ending, Message: "pod shop/a is ending"},
				{Namespace: "shop", Name: "b", Hold: drain.ToBeEvicted, Message: "pod shop/b is not evicted yet"},
				{
					Namespace: "shop",
					Name:      "c",
					Hold:      drain.Budget,
					Message:   "pod shop/c is held by PodDisruptionBudget db",
					Budgets:   []string{"db"},
				},
			}}
		}, want: "pod shop/c is held by PodDisruptionBudget db, pod shop/a is ending and 1 more"},
		"an uncordoned node": {
			edit: func(f *openshiftMachine) { f.node().Spec.Unschedulable = false },
			want: "the machine controller has to cordon node node-4",
		},
		"another node of the control plane": {edit: func(f *openshiftMachine) {
			f.node().Spec.Unschedulable, f.node().Labels = false, controlPlane
			f.nodes.byName["node-1"] = &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: controlPlane},
				Spec:       corev1.NodeSpec{Unschedulable: true},
			}
		}, want: "node node-1, which is drained first"},
		"a node that does not exist is drained": {
			edit: func(f *openshiftMachine) { f.nodes.byName = map[string]*corev1.Node{} },
			want: "the machine controller has to record that node node-4 is drained",
		},
		"hooks after the drain": {hooks: bothHooks, conditions: drained, edit: func(f *openshiftMachine) {
			f.infra.object = deletedInfrastructure(t)
			f.infra.object.SetDeletionTimestamp(nil)
		}, want: "preTerminate hook ShipLogs of log-op"},
		"infrastructure being deleted": {
			hooks:      terminateHook,
			conditions: drained,
			edit:       func(f *openshiftMachine) { f.infra.object = deletedInfrastructure(t) },
			want:       "KwokMachine web-4 (finalizer example.com/power): the BMC does not answer",
		},
		"infrastructure that a provider has": {
			conditions: drained,
			edit:       func(f *openshiftMachine) { f.infra.isKnown = false },
			want:       "infrastructure: its provider has to terminate test://web-4",
		},
		"infrastructure whose deletion fails": {conditions: drained, edit: func(f *openshiftMachine) {
			f.infra.isKnown = false
			f.machine.Status.Conditions = append(f.machine.Status.Conditions, machinev1beta1.Condition{
				Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
				Reason: deletion.ErrorDeleting, Message: "the cloud is busy",
			})
		}, want: "infrastructure: the cloud is busy"},
		"the Node object": {conditions: drained, want: "the machine controller has to delete node node-4"},
		"a Node object being deleted does not hold the machine": {conditions: drained, edit: func(f *openshiftMachine) {
			f.node().DeletionTimestamp, f.node().Finalizers = new(metav1.Now()), []string{"example.com/node"}
		}, want: "the machine controller has to remove its finalizer; finalizer example.com/backup"},
		"a hook that was added after the deletion of the infrastructure": {hooks: terminateHook, conditions: drained,
			edit: func(f *openshiftMachine) {
				f.machine.Status.Conditions = append(f.machine.Status.Conditions, machinev1beta1.Condition{
					Type: machinev1beta1.InstanceExistsCondition, Status: corev1.ConditionTrue,
					Reason: deletion.InstanceTerminating,
				})
			}, want: "the machine controller has to delete node node-4"},
		"finalizers of others": {
			conditions: drained,
			edit:       func(f *openshiftMachine) { f.machine.Finalizers = f.machine.Finalizers[1:] },
			want:       "finalizer example.com/backup",
		},
		"a machine that has failed": {edit: func(f *openshiftMachine) {
			f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, new(machinev1beta1.PhaseFailed)
			f.machine.Status.ErrorReason, f.machine.Status.ErrorMessage = new(
				machinev1beta1.InvalidConfigurationMachineError,
			), new("no such kind")
		}, want: "InvalidConfiguration: no such kind"},
		"a machine that runs": {hooks: bothHooks, edit: func(f *openshiftMachine) {
			f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, new(machinev1beta1.PhaseRunning)
		}},
		"a machine without a node yet": {edit: func(f *openshiftMachine) {
			f.machine.DeletionTimestamp, f.machine.Status.Phase = nil, new(machinev1beta1.PhaseProvisioned)
		}, want: "a node with the providerID test://web-4"},
	} {
		t.Run(name, func(t *testing.T) {
			f := deletedMachine(t, c.hooks, c.conditions)
			if c.edit != nil {
				c.edit(f)
			}
			m := f.overview()
			if got := m.HeldBy(); got != c.want {
				t.Errorf("held by %q, want %q", got, c.want)
			}
			if done := m.IsDone(); done != (c.want == "") {
				t.Errorf("IsDone is %v, but the machine is held by %q", done, c.want)
			}
		})
	}
}

// TestNodeOfAnotherHost checks machines of both APIs whose node's name another host has: its pods do not hold them.
func TestNodeOfAnotherHost(t *testing.T) {
	f, other := deletedMachine(t, "", ""), deletedClusterAPIMachine(t, "DrainingNode", "")
	for _, node := range []*corev1.Node{f.nodes.byName["node-4"], other.nodes.byName["node-4"]} {
		node.Spec.ProviderID = "test://another"
	}
	if got := f.drainHolds(); got[0].Message != "record that node node-4 is drained" || f.node() != nil {
		t.Errorf("machine.openshift.io: got the hold %q and node %v, want no node", got[0].Message, f.node())
	}
	if other.node() != nil {
		t.Errorf("cluster.x-k8s.io: got node %v, want none", other.node())
	}
}

func TestRemedyRemovesOneHook(t *testing.T) {
	message := deletedMachine(t, bothHooks, "").explain(now).Messages[2]
	if want := "preDrain hook Other of o'op holds it, for 10m"; message.Text != want {
		t.Errorf("got message %q, want %q", message.Text, want)
	}
	const want = `kubectl patch machine.machine.openshift.io web-4 -n shop --type=json -p '[{"op":"test","path":"/spec/lifecycleHooks/preDrain/1/name","value":"Other"},{"op":"remove","path":"/spec/lifecycleHooks/preDrain/1"}]'`
	if got := message.Details[len(message.Details)-1]; got != want {
		t.Errorf("got command\n%s\nwant\n%s", got, want)
	}
}

// TestNodeOfAnotherMachine checks a machine whose providerID is that of another machine's node.
func TestNodeOfAnotherMachine(t *testing.T) {
	const wanted = "a node with the providerID test://web-4"
	for name, c := range map[string]struct {
		annotations map[string]string
		held, first string
	}{
		"without owner": {nil, wanted, "the machine was started, and its kubelet has not joined"},
		"its own": {map[string]string{deletion.OpenShiftMachineAnnotation: "shop/web-4"}, wanted,
			"the machine was started, and its kubelet has not joined"},
		"of another one": {map[string]string{deletion.OpenShiftMachineAnnotation: "shop/web-3"},
			wanted + ", which node node-4 has; it belongs to machine shop/web-3 of machine.openshift.io",
			"a node belongs to one machine: correct the wrong providerID"},
		"of Cluster API": {map[string]string{
			"cluster.x-k8s.io/machine":           "web-4",
			"cluster.x-k8s.io/cluster-namespace": "shop",
		},
			wanted + ", which node node-4 has; it belongs to machine shop/web-4 of cluster.x-k8s.io",
			"a node belongs to one machine: correct the wrong providerID"},
	} {
		f := deletedMachine(t, "", "")
		f.machine.DeletionTimestamp = nil
		f.machine.Status.Phase = new(machinev1beta1.PhaseProvisioned)
		f.machine.Status.NodeRef = nil
		node := f.nodes.byName["node-4"]
		node.Spec.ProviderID, node.Annotations = "test://web-4", c.annotations
		m := f.overview()
		if got := m.HeldBy(); got != c.held {
			t.Errorf("%s: held by %q, want %q", name, got, c.held)
		}
		if got := m.Holds[0].remedy[0]; !strings.HasPrefix(got, c.first) {
			t.Errorf("%s: got remedy %q, want %q", name, got, c.first)
		}
	}
}

// TestLateHooks checks hooks whose stage is over: conditions show them, and nothing waits for them.
func TestLateHooks(t *testing.T) {
	const late = "preDrain hook Late of late-op was added too late, and has no effect: the drain is over"
	for name, c := range map[string]struct {
		hooks, conditions string
		terminating       bool
		want              []string
	}{
		"before the drain": {"preDrain: [{name: Late, owner: late-op}]", "", false, nil},
		"after the drain": {"preDrain: [{name: Late, owner: late-op}], " + terminateHook, drained, false,
			[]string{late}},
		"with both, terminating": {"preDrain: [{name: Late, owner: late-op}], " + terminateHook, drained, true,
			[]string{late,
				"preTerminate hook ShipLogs of log-op was added too late, and has no effect: the deletion of its " +
					"infrastructure was requested"}},
	} {
		f := deletedMachine(t, c.hooks, c.conditions)
		f.infra.object = deletedInfrastructure(t)
		if !c.terminating {
			f.infra.object.SetDeletionTimestamp(nil)
		}
		var got []string
		for _, message := range f.explain(now).Messages {
			if strings.Contains(message.Text, "added too late") {
				got = append(got, message.Text)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
