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

// threeDomains are the failure domains of a control plane.
const threeDomains = "{failureDomain: rack-a}, {failureDomain: rack-b}, {failureDomain: rack-c}"

// A scene is a namespace with machines.
type scene struct{ *machinetest.Fixture }

// makePreview makes the preview of a query for an object in a file, or of the cluster if the text is empty.
func (s *scene) makePreview(q rolloutpreview.Query, text string) (rolloutpreview.Preview, error) {
	s.Helper()
	q.Namespace = s.Namespace
	if text != "" {
		wanted, err := rolloutpreview.Read(q.Kind, q.Name, "new.yaml", []byte(text))
		s.Must(err)
		q.Wanted = wanted
	}
	return rolloutpreview.Make(s.Context(), stage.Connect(s), q)
}

// textOf returns a preview as text, without the namespace.
func (s *scene) textOf(p rolloutpreview.Preview) string {
	return strings.ReplaceAll(strings.Join(p.Lines(), "\n"), s.Namespace+"/", "")
}

// newControlPlane creates machines a, b and c that run in the racks of these names.
func newControlPlane(t *testing.T) *scene {
	s := &scene{stage.NewFixture(t)}
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

func (s *scene) machine(name string) *machinev1beta1.Machine {
	return &machinev1beta1.Machine{ObjectMeta: s.Meta(name)}
}

// setQuery is the query for the ControlPlaneMachineSet of a scene.
var setQuery = rolloutpreview.Query{Kind: rolloutpreview.ControlPlaneMachineSetKind, Name: "cluster"}

// previewSet makes the preview of a set in a file, or of the cluster if the text is empty.
func (s *scene) previewSet(text string) *rolloutpreview.ControlPlanePreview {
	s.Helper()
	p, err := s.makePreview(setQuery, text)
	s.Must(err)
	return p.(*rolloutpreview.ControlPlanePreview)
}

func (s *scene) expectSet(name, text, want string) {
	s.Helper()
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), s.textOf(s.previewSet(text))); diff != "" {
		s.Errorf("%s (-want +got):\n%s", name, diff)
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

// TestControlPlaneMachineSetPreviews compares the previews of sets, before they exist and after, with machines that
// run, are being deleted, or are not ready.
func TestControlPlaneMachineSetPreviews(t *testing.T) {
	t.Parallel()
	s := newControlPlane(t)
	s.expectSet("a set that does not exist yet",
		fmt.Sprintf(controlPlaneSet, "Inactive", "RollingUpdate", threeDomains, "large"),
		"ControlPlaneMachineSet cluster: Inactive, RollingUpdate; the preview shows its rollout once it is Active"+
			threeReplaced)
	s.expectSet("nothing changes", fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small"), `
ControlPlaneMachineSet cluster: Active, RollingUpdate
machine a, index 0, failureDomain=rack-a: stays as it is
machine b, index 1, failureDomain=rack-b: stays as it is
machine c, index 2, failureDomain=rack-c: stays as it is
no machine is created or deleted`)
	s.expectSet("one rack is removed",
		fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate",
			"{failureDomain: rack-a}, {failureDomain: rack-c}, {failureDomain: rack-d}", "small"), `
ControlPlaneMachineSet cluster: Active, RollingUpdate
machine a, index 0, failureDomain=rack-a: stays as it is
machine b, index 1: is outdated, and not replaced
  changes: spec.failureDomain is "rack-b", wanted is "rack-d"
machine c, index 2, failureDomain=rack-c: stays as it is
Degraded (UnknownFailureDomains): control plane machines are using unspecified failure domain(s): b; add their domains to the template
it creates and deletes no machine until this is solved`)
	s.expectSet("OnDelete", fmt.Sprintf(controlPlaneSet, "Active", "OnDelete", threeDomains, "large"), `
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
	wantErr := "ControlPlaneMachineSet cluster does not exist in namespace " + s.Namespace
	if _, err := s.makePreview(setQuery, ""); err == nil || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("a set that does not exist: got %v, want %q", err, wantErr)
	}
	s.testUnreadyMachines()
}

// createSet creates a set of large machines in the state Inactive.
func (s *scene) createSet() *unstructured.Unstructured {
	s.Helper()
	set := &unstructured.Unstructured{}
	s.Must(yaml.Unmarshal(fmt.Appendf(nil, controlPlaneSet, "Inactive", "RollingUpdate", threeDomains, "large"),
		&set.Object))
	set.SetNamespace(s.Namespace)
	s.MustCreate(set)
	return set
}

// adopt sets a set as the owner of the machines.
func (s *scene) adopt(set *unstructured.Unstructured) {
	s.Helper()
	for i, name := range []string{"a", "b", "c"} {
		s.MustPatch(s.machine(name), `{"metadata":{"annotations":{"machine.runlevel.dev/control-plane-index":"%d"},
			"ownerReferences":[{"apiVersion":"machine.openshift.io/v1","kind":"ControlPlaneMachineSet","name":"cluster","uid":%q,"controller":true}]}}`, i, set.GetUID())
	}
}

// testUnreadyMachines previews a set of the cluster while a machine is not ready, while it is being deleted, and while
// a node has no machine.
func (s *scene) testUnreadyMachines() {
	s.Helper()
	set := s.createSet()
	s.expectSet("a set of the cluster", "",
		"ControlPlaneMachineSet cluster: Inactive, RollingUpdate; the preview shows its rollout once it is Active"+
			threeReplaced)
	s.MustPatchStatus(s.machine("b"), `{"status":{"phase":"Provisioned","nodeRef":null,"errorMessage":"no disk"}}`)
	if got := strings.Join(s.previewSet("").Lines(), "\n"); !strings.Contains(got,
		"\n  1  delete  b  (index 1, failureDomain=rack-b: it is outdated, and not ready)\n  1  create  new 1  "+
			"(index 1, failureDomain=rack-b: for b, which is being deleted)\n  2  create  new 2") {
		s.Errorf("the unready machine is not deleted first:\n%s", got)
	}
	small := fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small")
	p := s.previewSet(small)
	if got := strings.Join(p.Lines(), "\n"); !p.IsStuck ||
		!strings.HasSuffix(got, "\nno machine is created or deleted\nthe replacement stops there\nit waits: machine "+
			"b is not ready (Provisioned)") {
		s.Errorf("an unready machine, and not outdated:\n%s", got)
	}
	s.adopt(set)
	s.MustPatch(s.machine("b"), `{"metadata":{"finalizers":["example.com/held"]}}`)
	s.MustDelete(s.machine("b"))
	if got := strings.Join(s.previewSet(small).Lines(), "\n"); !strings.Contains(got,
		"\nmachine b, index 1, failureDomain=rack-b: is being deleted\n") ||
		!strings.Contains(got, "(index 1, failureDomain=rack-b: for b, which is being deleted)") {
		s.Errorf("a machine being deleted:\n%s", got)
	}
	s.MustPatch(s.machine("b"), `{"metadata":{"finalizers":null}}`)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   s.Namespace + "-x",
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""},
	}}
	s.MustCreate(node)
	s.DeleteAfterwards(node)
	if p := s.previewSet(""); p.Degraded != "UnmanagedNodes" || len(p.Steps) > 0 {
		s.Errorf("a node without a machine: got %+v, want UnmanagedNodes and no steps", p)
	}
}

// TestControlPlaneMachineSetPreviewWithRefusedFailureDomain previews a set with a failure domain that sets a field
// which the infrastructure does not have: the preview shows that the machine would fail.
func TestControlPlaneMachineSetPreviewWithRefusedFailureDomain(t *testing.T) {
	t.Parallel()
	s := newControlPlane(t)
	s.adopt(s.createSet())
	s.expectSet("an unknown field",
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
it creates and deletes no machine until this is solved
it waits: machine new 1 is not ready (Failed)`)
}

// TestReadRefusesControlPlaneMachineSets checks that errors name the document and the field.
func TestReadRefusesControlPlaneMachineSets(t *testing.T) {
	valid := fmt.Sprintf(controlPlaneSet, "Active", "RollingUpdate", threeDomains, "small")
	testRefusals(t, setQuery, map[string]string{
		"":                      "new.yaml does not contain ControlPlaneMachineSet cluster of machine.openshift.io/v1",
		valid + "---\n{":        "new.yaml, document 2: ",
		valid + "---\n" + valid: "new.yaml, document 2: ControlPlaneMachineSet cluster is defined twice",
		strings.Replace(valid, "replicas: 3", "replicsa: 3", 1): "new.yaml, document 1: ControlPlaneMachineSet " +
			"cluster: " +
			`unknown field "spec.replicsa"`,
	})
}

// testRefusals compares the errors of files with the beginnings of their messages.
func testRefusals(t *testing.T, q rolloutpreview.Query, messages map[string]string) {
	t.Helper()
	for text, want := range messages {
		_, err := rolloutpreview.Read(q.Kind, q.Name, "new.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
