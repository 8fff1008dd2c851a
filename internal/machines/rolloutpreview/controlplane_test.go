package rolloutpreview_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// controlPlaneSet is a set with its state, strategy, failure domains and the size of its machines.
const controlPlaneSet = `apiVersion: machine.openshift.io/v1
kind: ControlPlaneMachineSet
metadata: {name: cluster}
spec:
  state: %s
  replicas: 3
  strategy: {type: %s}
  selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: master}}
  template:
    machineType: machines_v1beta1_machine_openshift_io
    machines_v1beta1_machine_openshift_io:
      metadata: {labels: {machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}}
      spec:
        providerSpec:
          value:
            apiVersion: infrastructure.runlevel.dev/v1alpha1
            kind: ExternalMachine
            failureDomains: [%s]
            spec: {description: %s}
`

// threeDomains are the racks of a control plane.
const threeDomains = "{failureDomain: rack-a}, {failureDomain: rack-b}, {failureDomain: rack-c}"

// A controlPlaneScene is a namespace with the machines of a control plane, that run.
type controlPlaneScene struct{ *machinetest.Fixture }

// newControlPlane makes machines a, b and c that run in the racks of these names.
func newControlPlane(t *testing.T) *controlPlaneScene {
	s := &controlPlaneScene{stage.NewFixture(t)}
	for _, name := range []string{"a", "b", "c"} {
		m := &machinev1beta1.Machine{ObjectMeta: s.Meta(name)}
		m.Labels = map[string]string{"machine.openshift.io/cluster-api-machine-role": "master"}
		s.Must(yaml.Unmarshal(fmt.Appendf(nil,
			`{providerSpec: {value: {apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine,
			spec: {description: small, failureDomain: rack-%s}}}}`, name), &m.Spec))
		s.MustCreate(m)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + name}}
		s.MustCreate(node)
		s.DeleteAfterwards(node)
		s.MustPatchStatus(node, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		s.MustPatchStatus(m, `{"status":{"phase":"Running","nodeRef":{"kind":"Node","name":%q}}}`, node.Name)
	}
	return s
}

func (s *controlPlaneScene) machine(name string) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: s.Meta(name)}
}

// preview previews a set in a file, or that of the cluster if the text is empty.
func (s *controlPlaneScene) preview(text string) *rolloutpreview.ControlPlanePreview {
	s.Helper()
	q := rolloutpreview.ControlPlaneQuery{Namespace: s.Namespace, Name: "cluster"}
	var err error
	if text != "" {
		q.Wanted, err = rolloutpreview.ReadControlPlaneMachineSet("new.yaml", []byte(text), "cluster")
		s.Must(err)
	}
	p, err := rolloutpreview.PreviewControlPlane(s.Context(), stage.Connect(s), q)
	s.Must(err)
	return p
}

func (s *controlPlaneScene) expect(what, text, want string) {
	s.Helper()
	got := strings.ReplaceAll(strings.Join(s.preview(text).Lines(), "\n"), s.Namespace+"/", "")
	if want = strings.TrimPrefix(want, "\n"); got != want {
		s.Errorf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

const threeReplaced = `
machine a, index 0, failureDomain=rack-a: is replaced
  changes: spec.description is "small", wanted is "large"
machine b, index 1, failureDomain=rack-b: is replaced
  changes: spec.description is "small", wanted is "large"
machine c, index 2, failureDomain=rack-c: is replaced
  changes: spec.description is "small", wanted is "large"

  1  create  new 1  (index 0, failureDomain=rack-a: for a)
  2  delete  a  (index 0, failureDomain=rack-a: new 1 takes its place)
  3  create  new 2  (index 1, failureDomain=rack-b: for b)
  4  delete  b  (index 1, failureDomain=rack-b: new 2 takes its place)
  5  create  new 3  (index 2, failureDomain=rack-c: for c)
  6  delete  c  (index 2, failureDomain=rack-c: new 3 takes its place)
created: 3, deleted: 3`

// TestControlPlanePreviews compares what is shown of sets, before they exist and after, with machines that run, go and
// are down.
func TestControlPlanePreviews(t *testing.T) {
	t.Parallel()
	s := newControlPlane(t)
	s.expect("a set that does not exist yet",
		fmt.Sprintf(controlPlaneSet, "Inactive", "RollingUpdate", threeDomains, "large"),
		"ControlPlaneMachineSet cluster: Inactive, RollingUpdate; this is what it does once it is Active"+threeReplaced)
	s.expect("nothing changes", fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small"), `
ControlPlaneMachineSet cluster: Active, RollingUpdate
machine a, index 0, failureDomain=rack-a: stays as it is
machine b, index 1, failureDomain=rack-b: stays as it is
machine c, index 2, failureDomain=rack-c: stays as it is
no machine is created or deleted`)
	s.expect("one rack is given up",
		fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate",
			"{failureDomain: rack-a}, {failureDomain: rack-c}, {failureDomain: rack-d}", "small"), `
ControlPlaneMachineSet cluster: Active, RollingUpdate
machine a, index 0, failureDomain=rack-a: stays as it is
machine b, index 1: is outdated, and not replaced
  changes: spec.failureDomain is "rack-b", wanted is "rack-d"
machine c, index 2, failureDomain=rack-c: stays as it is
Degraded (UnknownFailureDomains): control plane machines are using unspecified failure domain(s): b; add their domains to the template
it creates and deletes no machine until that is solved`)
	s.expect("OnDelete", fmt.Sprintf(controlPlaneSet, "Active", "OnDelete", threeDomains, "large"), `
ControlPlaneMachineSet cluster: Active, OnDelete
machine a, index 0, failureDomain=rack-a: is replaced once it is deleted by hand
  changes: spec.description is "small", wanted is "large"
machine b, index 1, failureDomain=rack-b: is replaced once it is deleted by hand
  changes: spec.description is "small", wanted is "large"
machine c, index 2, failureDomain=rack-c: is replaced once it is deleted by hand
  changes: spec.description is "small", wanted is "large"
no machine is created or deleted
it waits: machine a needs an update: delete it to have it replaced
it waits: machine b needs an update: delete it to have it replaced
it waits: machine c needs an update: delete it to have it replaced`)
	q := rolloutpreview.ControlPlaneQuery{Namespace: s.Namespace, Name: "cluster"}
	if _, err := rolloutpreview.PreviewControlPlane(t.Context(), stage.Connect(t), q); err == nil ||
		!strings.Contains(err.Error(), "there is no ControlPlaneMachineSet cluster in namespace "+s.Namespace) {
		t.Errorf("a set that does not exist: %v", err)
	}
	s.testMachinesThatAreNotWell()
}

// createSet creates a set of large machines that is not active.
func (s *controlPlaneScene) createSet() *unstructured.Unstructured {
	s.Helper()
	set := &unstructured.Unstructured{}
	s.Must(yaml.Unmarshal(fmt.Appendf(nil, controlPlaneSet, "Inactive", "RollingUpdate", threeDomains, "large"),
		&set.Object))
	set.SetNamespace(s.Namespace)
	s.MustCreate(set)
	return set
}

// adopt makes a set the owner of the machines.
func (s *controlPlaneScene) adopt(set *unstructured.Unstructured) {
	s.Helper()
	for i, name := range []string{"a", "b", "c"} {
		s.MustPatch(s.machine(name), `{"metadata":{"annotations":{"machine.runlevel.dev/control-plane-index":"%d"},
			"ownerReferences":[{"apiVersion":"machine.openshift.io/v1","kind":"ControlPlaneMachineSet","name":"cluster","uid":%q,"controller":true}]}}`, i, set.GetUID())
	}
}

// testMachinesThatAreNotWell previews a set of the cluster while a machine is down, another one goes, and a node is of
// no machine.
func (s *controlPlaneScene) testMachinesThatAreNotWell() {
	s.Helper()
	set := s.createSet()
	s.expect("a set of the cluster", "",
		"ControlPlaneMachineSet cluster: Inactive, RollingUpdate; this is what it does once it is Active"+threeReplaced)
	s.MustPatchStatus(s.machine("b"), `{"status":{"phase":"Provisioned","nodeRef":null,"errorMessage":"no disk"}}`)
	if got := strings.Join(s.preview("").Lines(), "\n"); !strings.Contains(got,
		"\n  1  delete  b  (index 1, failureDomain=rack-b: it is outdated, and not ready)\n  1  create  new 1  "+
			"(index 1, failureDomain=rack-b: for b, which is being deleted)\n  2  create  new 2") {
		s.Errorf("a machine that is down does not go first:\n%s", got)
	}
	small := fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small")
	p := s.preview(small)
	if got := strings.Join(p.Lines(), "\n"); !p.IsStuck ||
		!strings.HasSuffix(got, "\nno machine is created or deleted\nthe replacement stops there\nit waits: machine "+
			"b is not ready (Provisioned)") {
		s.Errorf("one that is down, and not outdated:\n%s", got)
	}
	s.adopt(set)
	s.MustPatch(s.machine("b"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	s.MustDelete(s.machine("b"))
	if got := strings.Join(s.preview(small).Lines(), "\n"); !strings.Contains(got,
		"\nmachine b, index 1, failureDomain=rack-b: is being deleted\n") ||
		!strings.Contains(got, "(index 1, failureDomain=rack-b: for b, which is being deleted)") {
		s.Errorf("one that is being deleted:\n%s", got)
	}
	s.MustPatch(s.machine("b"), `{"metadata":{"finalizers":null}}`)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   s.Namespace + "-x",
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
	}}
	s.MustCreate(node)
	s.DeleteAfterwards(node)
	if p := s.preview(""); p.Degraded != "UnmanagedNodes" || len(p.Steps) > 0 {
		s.Errorf("a node without a machine: %+v", p)
	}
}

// TestFailureDomainWithAnUnknownField previews a set with a failure domain that sets a field which the infrastructure
// does not have: the preview shows that the machine would fail.
func TestFailureDomainWithAnUnknownField(t *testing.T) {
	t.Parallel()
	s := newControlPlane(t)
	s.adopt(s.createSet())
	s.expect("an unknown field",
		strings.Replace(fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small"), "rack-a",
			"rack-a, zone: one", 1), `
ControlPlaneMachineSet cluster: Active, RollingUpdate
machine a, index 0: is outdated, and not replaced
  changes: spec.zone is not set, wanted is "one"
machine b, index 1, failureDomain=rack-b: stays as it is
machine c, index 2, failureDomain=rack-c: stays as it is

  1  create  new 1  (index 0, failureDomain=rack-a, zone=one: for a)
created: 1, deleted: 0
Degraded (FailedReplacement): Observed 1 replacement machine(s) in error state: new 1 (ExternalMachine is refused: unknown field "spec.zone"); correct the template, or delete them
it creates and deletes no machine until that is solved
it waits: machine new 1 is not ready (Failed)`)
}

// TestSetsInFilesThatAreRefused names the document and the field.
func TestSetsInFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	valid := fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small")
	for text, want := range map[string]string{
		"": "new.yaml has no ControlPlaneMachineSet cluster of machine.openshift.io/v1: write " +
			"it as it is to be",
		valid + "---\n{":        "new.yaml, document 2: ",
		valid + "---\n" + valid: "new.yaml, document 2: it is the ControlPlaneMachineSet once more: leave one",
		strings.Replace(valid, "replicas: 3", "replicsa: 3",
			1): `new.yaml, document 1: ControlPlaneMachineSet cluster: unknown field "spec.replicsa"`,
	} {
		if _, err := rolloutpreview.ReadControlPlaneMachineSet("new.yaml", []byte(text), "cluster"); err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
