package rolloutpreview_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
)

// A middle is a rollout of the deployment of newMachines to version v2 that has begun: web-2 is the new set.
type middle struct {
	testing.TB
	client.Client
	namespace string
	from, to  *clusterv1.MachineSet
}

// newMiddle makes the new set, and scales the old one down.
func newMiddle(t *testing.T, replicas int32, annotations map[string]string) *middle {
	t.Helper()
	m := &middle{TB: t, Client: stage.Client(t), namespace: newMachines(t), from: &clusterv1.MachineSet{}}
	m.must(m.Get(t.Context(), client.ObjectKey{Namespace: m.namespace, Name: "web-1"}, m.from))
	m.to = &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.namespace, Name: "web-2", OwnerReferences: m.from.OwnerReferences, Annotations: annotations,
	}, Spec: *m.from.Spec.DeepCopy()}
	m.to.Spec.Replicas, m.to.Spec.Template.Spec.Version = ptr.To[int32](1), "v2"
	m.must(m.Create(t.Context(), m.to))
	m.patch(m.from, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	return m
}

func (m *middle) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *middle) patch(object client.Object, merge string) {
	m.Helper()
	m.must(m.Patch(m.Context(), object, client.RawPatch("application/merge-patch+json", []byte(merge))))
}

func (m *middle) machine(name string) *clusterv1.Machine {
	m.Helper()
	machine := &clusterv1.Machine{}
	m.must(m.Get(m.Context(), client.ObjectKey{Namespace: m.namespace, Name: name}, machine))
	return machine
}

// add makes a machine of the new set. It is available, or has no Node yet.
func (m *middle) add(name string, isAvailable bool) {
	m.Helper()
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(m.to, clusterv1.GroupVersion.WithKind("MachineSet")),
		},
	}, Spec: m.to.Spec.Template.Spec}
	machine.Spec.InfrastructureRef.Kind = "KwokMachine"
	m.must(m.Create(m.Context(), machine))
	if !isAvailable {
		return
	}
	before := machine.DeepCopy()
	machine.Status.NodeRef.Name = name
	meta.SetStatusCondition(&machine.Status.Conditions,
		metav1.Condition{Type: clusterv1.MachineAvailableCondition, Status: metav1.ConditionTrue, Reason: "Available"})
	m.must(m.Status().Patch(m.Context(), machine, client.MergeFrom(before)))
}

// move gives a machine to the new set, as the old one does it.
func (m *middle) move(name string) {
	m.Helper()
	owner := metav1.NewControllerRef(m.to, clusterv1.GroupVersion.WithKind("MachineSet"))
	machine := m.machine(name)
	before := machine.DeepCopy()
	machine.OwnerReferences = []metav1.OwnerReference{*owner}
	machine.Annotations = map[string]string{
		clusterv1.UpdateInProgressAnnotation:       "",
		clusterv1.PendingAcknowledgeMoveAnnotation: "",
	}
	m.must(m.Patch(m.Context(), machine, client.MergeFrom(before)))
}

// hold deletes a machine that a finalizer holds.
func (m *middle) hold(name string) {
	m.Helper()
	machine := m.machine(name)
	m.patch(machine, `{"metadata":{"finalizers":["example.com/held"]}}`)
	m.must(m.Delete(m.Context(), machine))
}

// mark has a machine be replaced, since it is not healthy.
func (m *middle) mark(name string) {
	m.Helper()
	machine := m.machine(name)
	before := machine.DeepCopy()
	for _, condition := range []string{clusterv1.MachineHealthCheckSucceededCondition,
		clusterv1.MachineOwnerRemediatedCondition} {
		meta.SetStatusCondition(&machine.Status.Conditions,
			metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Test"})
	}
	m.must(m.Status().Patch(m.Context(), machine, client.MergeFrom(before)))
}

// expect compares the steps that are told, but for their reasons.
func (m *middle) expect(q rolloutpreview.PreviewQuery, wanted, want string) {
	m.Helper()
	var err error
	q.Namespace = m.namespace
	q.Wanted, err = rolloutpreview.Read("new.yaml", []byte(wanted), "web")
	m.must(err)
	p, err := rolloutpreview.Preview(m.Context(), stage.Connect(m), q)
	m.must(err)
	got := p.Unanswered
	for _, step := range p.Steps {
		got += fmt.Sprintf("%d %s %s, ", step.Round, step.Action, step.Machine)
		if step.Reason == "" {
			m.Errorf("%s of %s has no reason", step.Action, step.Machine)
		}
	}
	if p.IsStuck {
		got += "stuck, "
	}
	if diff := cmp.Diff(want, strings.TrimSuffix(got, ", ")); diff != "" {
		m.Errorf("(-want +got):\n%s", diff)
	}
}

// inPlace returns an extension that makes v2 of v1.
func inPlace(t *testing.T) rolloutpreview.PreviewQuery {
	t.Helper()
	extension := runtimehooktest.New(t)
	const handler = `{"name":"%s","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"%s"}}`
	extension.Answer("Discovery",
		fmt.Sprintf(`{"status":"Success","handlers":[`+handler+`,`+handler+`]}`, "can", "CanUpdateMachineSet", "do",
			"UpdateMachine"))
	extension.Answer("CanUpdateMachineSet",
		`{"status":"Success","machineSetPatch":{"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL3RlbXBsYXRlL3NwZWMvdmVyc2lvbiIsInZhbHVlIjoidjIifV0="}}`)
	return rolloutpreview.PreviewQuery{Extension: rolloutpreview.ExtensionQuery{
		URL: extension.ClientConfig().URL,
		CA:  extension.CA(),
	}}
}

// moving has the old set move machines to the new one, which counts one.
func moving(t *testing.T) *middle {
	t.Helper()
	m := newMiddle(t, 2, map[string]string{
		clusterv1.MachineSetReceiveMachinesFromMachineSetsAnnotation: "web-1",
		clusterv1.AcknowledgedMoveAnnotation:                         "m1",
	})
	m.patch(m.from, `{"metadata":{"annotations":{"`+clusterv1.MachineSetMoveMachinesToMachineSetAnnotation+
		`":"web-2"}}}`)
	m.move("m1")
	return m
}

func TestAMachineThatIsOnItsWayIsCountedOnce(t *testing.T) {
	m := moving(t)
	m.expect(inPlace(t), fmt.Sprintf(deployment, 0, 1, "v2", "small"), "1 UpdateInPlace m2, 2 UpdateInPlace m3")
}

func TestAMachineThatIsMarkedAsUnhealthyIsNotMoved(t *testing.T) {
	m := moving(t)
	m.mark("m2")
	m.expect(inPlace(t), fmt.Sprintf(deployment, 0, 1, "v2", "small"),
		"1 Delete m2, 2 Create new 1, 3 UpdateInPlace m3")
}

func TestAPauseInTheMiddleMovesNoMore(t *testing.T) {
	m := moving(t)
	m.patch(m.from, `{"spec":{"replicas":1}}`) // one more was to be moved
	wanted := strings.Replace(fmt.Sprintf(deployment, 0, 1, "v2", "small"), "spec:\n", "spec:\n  paused: true\n", 1)
	m.expect(inPlace(t), wanted, "")
}

func TestAMachineThatComesUpBecomesAvailable(t *testing.T) {
	m := newMiddle(t, 3, nil)
	m.add("n1", false)
	m.expect(rolloutpreview.PreviewQuery{}, fmt.Sprintf(deployment, 1, 0, "v2", "small"),
		"1 Delete m1, 2 Create new 1, 3 Delete m2, 4 Create new 2, 5 Delete m3")
}

func TestAMachineThatIsHeldWasDeletedBefore(t *testing.T) {
	m := newMiddle(t, 2, nil)
	m.add("n1", true)
	m.hold("m1")
	m.expect(rolloutpreview.PreviewQuery{}, fmt.Sprintf(deployment, 1, 0, "v2", "small"),
		"1 Create new 1, 2 Delete m2, 3 Create new 2, 4 Delete m3")
}
