package manager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	machinemanager "github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// addControlPlane creates three machines, a member on each, and a set that has adopted them. It returns the set.
func (s *scene) addControlPlane(t *testing.T) *machinev1.ControlPlaneMachineSet {
	t.Helper()
	const labels = `{machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}`
	const value = `{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine, spec: {description: small}}`
	for index := range 3 {
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace,
			Name:      fmt.Sprintf("%s-%d", s.namespace, index),
		}}
		mustRead(t, `{metadata: {labels: `+labels+`}, spec: {providerSpec: {value: `+value+`}}}`, m)
		if err := s.client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		s.eventually("the machine runs", func(context.Context) error {
			if running := s.machines(isRunning); len(running) != index+1 {
				return fmt.Errorf("%v run", running)
			}
			return nil
		})
	}
	s.bootstrap(1, 2, 3)
	s.allowMembers(true)
	set := &machinev1.ControlPlaneMachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cluster"}}
	mustRead(t,
		`{spec: {state: Active, replicas: 3, selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: master}}, template: {
		machineType: machines_v1beta1_machine_openshift_io, machines_v1beta1_machine_openshift_io: {
			metadata: {labels: `+labels+`}, spec: {providerSpec: {value: `+value+`}}}}}}`, set)
	if err := s.client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return set
}

func mustRead(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// awaitSet waits until a condition of the set has a reason, and a text in its message.
func (s *scene) awaitSet(set *machinev1.ControlPlaneMachineSet, kind, reason, text string) {
	s.Helper()
	s.eventually(kind+" is "+reason+": "+text, func(ctx context.Context) error {
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(set.Status.Conditions, kind)
		if condition == nil || condition.Reason != reason || !strings.Contains(condition.Message, text) ||
			condition.ObservedGeneration != set.Generation {
			return fmt.Errorf("conditions %+v", set.Status.Conditions)
		}
		return nil
	})
}

// resize changes the template of a set.
func (s *scene) resize(t *testing.T, set *machinev1.ControlPlaneMachineSet, size string) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"template":{"machines_v1beta1_machine_openshift_io":{"spec":{"providerSpec":{"value":{"spec":{"description":"`+size+`"}}}}}}}}`))
	if err := s.client.Patch(t.Context(), set, patch); err != nil {
		t.Fatal(err)
	}
}

// TestControlPlaneMachineSetKeepsQuorum makes a set replace all machines while etcd is written to, beginning with a
// machine that does not join for a while; then two machines that are deleted by a user, while the guard and the machine
// controller are killed at their writes; and one whose member is down.
func TestControlPlaneMachineSetKeepsQuorum(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	own := newGuardSandbox() // the nodes of other scenes would be unmanaged
	t.Cleanup(func() { _ = own.Sandbox(t).Stop() })
	own.once.Do(func() { own.applyManifests(t) }) // the scene has a machine controller of its own
	s := newSceneOn(t, own)
	endManager := s.manage(t, own.Sandbox(t).Config, machinemanager.OpenShift)
	set := s.addControlPlane(t)
	options := s.guardOptions()
	options.Etcd.Patience = 15 * time.Second // longer than a member of a busy machine takes to answer
	guard := s.startGuardProcess(t, options)
	s.awaitHooks(3)
	s.awaitSet(set, "Progressing", "AllReplicasUpdated", "")
	load := s.startLoad(t)

	s.allowMembers(false)
	s.resize(t, set, "large")
	s.awaitSet(set, "Progressing", "NeedsUpdateReplicas",
		"held by the hook EtcdQuorumOperator of clusteroperator/etcd: ")
	s.awaitMembers("1 2 3")
	s.expectExplanation(t)
	s.allowMembers(true)
	s.awaitSet(set, "Progressing", "AllReplicasUpdated", "")
	s.awaitMembers("4 5 6")

	s.awaitHooks(3)
	endManager()
	s.delete(4)
	s.delete(5)
	s.killAtWrites(guard, true, false)
	s.killManagerAtWrites(t, func() bool { return len(s.machines(s.isOneOf(4, 5))) < 2 })
	s.manage(t, own.Sandbox(t).Config, machinemanager.OpenShift)
	s.awaitMachineGone(4)
	s.awaitMachineGone(5)
	s.awaitSet(set, "Progressing", "AllReplicasUpdated", "")
	s.awaitMembers("6 7 8")
	s.awaitHooks(3)
	s.gate.set(nil, nil)
	if guard.kills < 4 { // the hook of a new machine, promote, remove, and the hook of a machine that goes
		t.Errorf("the guard was killed %d times", guard.kills)
	}

	s.kill(6)
	s.delete(6)
	s.awaitMachineGone(6)
	s.awaitSet(set, "Progressing", "AllReplicasUpdated", "")
	s.awaitMembers("7 8 9")
	if names := s.machines(isRunning); len(names) != 3 || slices.Contains(names, s.machine(6)) {
		t.Errorf("running machines: got %v, want three, without %s", names, s.machine(6))
	}
	load.check(t)
}

// killManagerAtWrites runs the machine controller, and kills it before each of its writes, until the work is done
// without.
func (s *scene) killManagerAtWrites(t *testing.T, isDone func() bool) {
	t.Helper()
	var cuts sandboxtest.WriteCuts
	for life := 1; ; life++ {
		cut := cuts.Next()
		end := s.manage(t, sandboxtest.Before(s.shared.Sandbox(t).Config, cut.Check), machinemanager.OpenShift)
		s.eventually("the machine controller is killed, or done", func(context.Context) error {
			if cut.Missed() == "" && !isDone() {
				return errors.New("it is neither")
			}
			return nil
		})
		end()
		s.deleteLease(metav1.NamespaceDefault, "machine-controller")
		if cut.Missed() == "" {
			if life < 8 { // six writes create a machine, and five delete one
				t.Errorf("the machine controller was killed %d times", life-1)
			}
			return
		}
		t.Logf("%s: life %d of the machine controller ended before %s", time.Now().Format(time.TimeOnly), life,
			cut.Missed())
	}
}

func (s *scene) isOneOf(numbers ...int) func(*machinev1beta1.Machine) bool {
	return func(m *machinev1beta1.Machine) bool {
		return slices.ContainsFunc(numbers, func(number int) bool { return s.machine(number) == m.Name })
	}
}

// expectExplanation expects the explanation of the set to name the machine that the guard holds, and the reason.
func (s *scene) expectExplanation(t *testing.T) {
	t.Helper()
	id := kinds.NewID(overview.ControlPlaneMachineSetKind, s.namespace, "cluster")
	explained, err := overview.Explain(t.Context(), s.shared.Connect(t), id)
	if err != nil {
		t.Fatal(err)
	}
	isHeld := slices.ContainsFunc(explained.Messages, func(statement diagnosis.Message) bool {
		return strings.Contains(statement.Text,
			"(Deleting): preDrain hook EtcdQuorumOperator of clusteroperator/etcd holds it") &&
			strings.HasPrefix(statement.Details[0], "its controller reports: waits: etcd member ")
	})
	if explained.IsDone || !isHeld {
		t.Errorf("the machine that the guard holds is not named: %q", explained.Messages)
	}
}
