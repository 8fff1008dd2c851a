package rolloutpreview_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
)

// runlevelControlPlane is a control plane with its maxSurge, version and template.
const runlevelControlPlane = `apiVersion: controlplane.runlevel.dev/v1alpha1
kind: RunlevelControlPlane
metadata: {name: plane}
spec:
  replicas: 3
  version: %[2]s
  rollout: {strategy: {rollingUpdate: {maxSurge: %[1]d}}}
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachineTemplate, name: %[3]s}
      bootstrap: {dataSecretName: none}
`

// newPlane creates a control plane with machines a, b and c that are available, and whose provider has set a field of
// their infrastructure.
func newPlane(t *testing.T) *scene {
	s := &scene{stage.NewFixture(t)}
	create := func(format string, arguments ...any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		s.Must(yaml.Unmarshal(fmt.Appendf(nil, format, arguments...), &object.Object))
		object.SetNamespace(s.Namespace)
		s.MustCreate(object)
		return object
	}
	create(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: c}, spec: {controlPlaneRef: {apiGroup: controlplane.runlevel.dev, kind: RunlevelControlPlane, name: plane}}}`)
	create(`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachineTemplate, metadata: {name: small}, spec: {template: {spec: {}}}}`)
	plane := create(runlevelControlPlane, 0, "v1.35.0", "small")
	for _, name := range []string{"a", "b", "c"} {
		create(`{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: KwokMachine, metadata: {name: %[1]s, annotations: {
			cluster.x-k8s.io/cloned-from-name: small, cluster.x-k8s.io/cloned-from-groupkind: KwokMachineTemplate.infrastructure.runlevel.dev}}, spec: {providerID: "kwok://%[1]s"}}`, name)
		create(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: %[1]s, labels: {cluster.x-k8s.io/control-plane: ""},
			ownerReferences: [{apiVersion: controlplane.runlevel.dev/v1alpha1, kind: RunlevelControlPlane, name: plane, uid: %[2]s, controller: true}]}, spec: {clusterName: c, version: v1.35.0,
			bootstrap: {dataSecretName: none}, infrastructureRef: {apiGroup: infrastructure.runlevel.dev, kind: KwokMachine, name: %[1]s}}}`, name, plane.GetUID())
		s.setAvailable(name, metav1.ConditionTrue, "")
	}
	return s
}

func (s *scene) setAvailable(name string, status metav1.ConditionStatus, message string) {
	s.Helper()
	const condition = `{"type":%q,"status":%q,"reason":"Observed","message":%q,"lastTransitionTime":"2026-01-02T03:05:00Z"}`
	s.MustPatchStatus(&clusterv1.Machine{ObjectMeta: s.Meta(name)},
		`{"status":{"nodeRef":{"name":"node"},"conditions":[`+condition+`,`+condition+`]}}`, "Ready", status, message,
		"Available", status, message)
}

// planeQuery is the query for the RunlevelControlPlane of a scene.
var planeQuery = rolloutpreview.Query{Kind: rolloutpreview.RunlevelControlPlaneKind, Name: "plane"}

// previewPlane makes the preview of a control plane in a file.
func (s *scene) previewPlane(text string,
	extension rolloutpreview.ExtensionQuery) *rolloutpreview.ControlPlanePreview {
	s.Helper()
	q := planeQuery
	q.Extension = extension
	p, err := s.makePreview(q, text)
	s.Must(err)
	return p.(*rolloutpreview.ControlPlanePreview)
}

func (s *scene) expectPlane(name, text string, extension rolloutpreview.ExtensionQuery, want string) {
	s.Helper()
	got := s.textOf(s.previewPlane(text, extension))
	if want = strings.TrimPrefix(want, "\n"); !strings.HasPrefix(got, want) {
		s.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
	}
}

// coveringVersions returns an extension that can change the version of a machine, and nothing else.
func coveringVersions(t *testing.T) rolloutpreview.ExtensionQuery {
	patch := base64.StdEncoding.EncodeToString([]byte(`{"spec":{"version":"v1.36.0"}}`))
	_, q := newExtension(t, "CanUpdateMachine",
		fmt.Sprintf(`{"status":"Success","machinePatch":{"patchType":"JSONMergePatch","patch":%q}}`, patch))
	return q
}

// TestRunlevelControlPlanePreviews compares the previews of control planes with machines that an extension can update,
// and with machines that are not ready.
func TestRunlevelControlPlanePreviews(t *testing.T) {
	t.Parallel()
	s := newPlane(t)
	covering := coveringVersions(t)
	s.expectPlane("in place", fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"), covering, `
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 0
machine a: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine b: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine c: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension

  1  update in place  a  (by extension can.extension)
  2  update in place  b  (by extension can.extension)
  3  update in place  c  (by extension can.extension)
updated in place: 3, created: 0, deleted: 0`)
	s.expectPlane("with a surge, the last machine is deleted", fmt.Sprintf(runlevelControlPlane, 1, "v1.36.0", "small"),
		covering,
		`
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 1
machine a: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine b: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine c: is replaced
  changes: Version v1.35.0, v1.36.0 required

  1  create           new 1  (one more than wanted, before an outdated one is deleted (maxSurge))
  2  update in place  a  (by extension can.extension)
  3  update in place  b  (by extension can.extension)
  4  delete           c  (it is outdated, and enough machines are up to date)
updated in place: 2, created: 1, deleted: 1`)
	s.expectPlane("not covered", fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "large")+large, covering, `
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 0
machine a: is replaced
  changes: Version v1.35.0, v1.36.0 required
  changes: KwokMachine is not up-to-date
  not in place: infrastructureMachine spec.startAfter is not covered by extension can.extension
`)
	s.setAvailable("b", metav1.ConditionFalse, "it is down")
	p := s.previewPlane(fmt.Sprintf(runlevelControlPlane, 0, "v1.35.0", "small"), covering)
	if len(p.Steps) > 0 || !p.IsStuck {
		t.Errorf("an unready machine, and not outdated: %s", strings.Join(p.Lines(), "\n"))
	}
	p = s.previewPlane(fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"), covering)
	if first := p.Steps[0]; first.Action != rolloutpreview.DeleteMachine || first.Machine != "b" ||
		first.Reason != "it is outdated, and not ready" {
		t.Errorf("the unready machine is not deleted first: %s", strings.Join(p.Lines(), "\n"))
	}
	s.setAvailable("a", metav1.ConditionFalse, "it is down, too")
	p = s.previewPlane(fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"), covering)
	if len(p.Steps) > 0 || !p.IsStuck || p.Machines[2].Outcome != rolloutpreview.IsOutdated || len(p.Waits) == 0 {
		t.Errorf("two machines that are not ready: %s", strings.Join(p.Lines(), "\n"))
	}
}

// TestRunlevelControlPlanePreviewBeginsWithRunningUpdate previews a rollout while a machine is updated in place: the
// update is the first step.
func TestRunlevelControlPlanePreviewBeginsWithRunningUpdate(t *testing.T) {
	t.Parallel()
	s := newPlane(t)
	s.MustPatch(&clusterv1.Machine{ObjectMeta: s.Meta("b")},
		`{"metadata":{"annotations":{%q:"",%q:"UpdateMachine"}},"spec":{"version":"v1.36.0"}}`,
		clusterv1.UpdateInProgressAnnotation, runtimev1.PendingHooksAnnotation)
	s.expectPlane("begun", fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"), coveringVersions(t), `
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 0
machine a: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine b: is updated in place
machine c: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension

  1  update in place  b  (it has begun)
  2  update in place  a  (by extension can.extension)
  3  update in place  c  (by extension can.extension)
updated in place: 3, created: 0, deleted: 0`)
}

// TestRunlevelControlPlanePreviewsOfStates compares the previews of machines that are annotated, updated, deleted or
// have not joined.
func TestRunlevelControlPlanePreviewsOfStates(t *testing.T) {
	t.Parallel()
	covering := coveringVersions(t)
	outdated, upToDate := fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"),
		fmt.Sprintf(runlevelControlPlane, 0, "v1.35.0", "small")
	const annotation = `{"metadata":{"annotations":{%q:""}}}`
	for name, c := range map[string]struct {
		annotation, status string // annotation and status of machine c
		text               string
		want               []string
	}{
		"one too many": {text: strings.Replace(upToDate, "replicas: 3", "replicas: 2", 1),
			want: []string{"machine a: is deleted\n",
				"  1  delete  a  (there is one machine too many)\ncreated: 0, deleted: 1"}},
		"one too many is chosen": {clusterv1.DeleteMachineAnnotation, "",
			strings.Replace(upToDate, "replicas: 3", "replicas: 2", 1),
			[]string{"machine c: is deleted\n",
				"  1  delete  c  (there is one machine too many, and it is annotated with " +
					"cluster.x-k8s.io/delete-machine)\n"}},
		"chosen": {clusterv1.DeleteMachineAnnotation, "", outdated,
			[]string{"  1  delete           c  (it is outdated, and annotated with " +
				"cluster.x-k8s.io/delete-machine)\n"}},
		"to be remediated": {clusterv1.RemediateMachineAnnotation, "", outdated,
			[]string{"delete           c  (it is outdated, and not to be updated in place: spec.rollout.after has " +
				"passed, or it is unhealthy)\n"}},
		"never joined": {"", `{"status":{"nodeRef":null}}`, outdated,
			[]string{"  1  delete           c  (it is outdated, and has never joined)\n",
				"  2  create           new 1  (rack-a: there are 2 of 3 machines)\n"}},
		"updated in place": {"",
			`{"status":{"conditions":[{"type":"Updating","status":"True","reason":"Observed","message":"","lastTransitionTime":"2026-01-02T03:05:00Z"}]}}`, upToDate, []string{"machine c: is updated in place\n"}},
		"another kind": {text: strings.Replace(outdated, "bootstrap: {",
			"bootstrap: {configRef: {apiGroup: bootstrap.example.com, kind: TestConfigTemplate, name: x}, ", 1),
			want: []string{"machine a: is replaced\n",
				"  not in place: spec.machineTemplate.spec.bootstrap.configRef is added or removed\n"}},
		"paused": {text: strings.Replace(outdated, "name: plane",
			`name: plane, annotations: {cluster.x-k8s.io/paused: ""}`, 1),
			want: []string{"plane: Paused, RollingUpdate, maxSurge 0; the preview shows its rollout once it is " +
				"Active\n",
				"  1  update in place  a "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPlane(t)
			s.MustPatchStatus(&clusterv1.Cluster{ObjectMeta: s.Meta("c")},
				`{"status":{"failureDomains":[{"name":"rack-a","controlPlane":true}]}}`)
			m := &clusterv1.Machine{ObjectMeta: s.Meta("c")}
			if c.annotation != "" {
				s.MustPatch(m, annotation, c.annotation)
			}
			if c.status != "" {
				s.MustPatchStatus(m, "%s", c.status)
			}
			got := strings.Join(s.previewPlane(c.text, covering).Lines(), "\n")
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing:\n%s", want, got)
				}
			}
		})
	}
}

// TestRunlevelControlPlanePreviewsOfDeletions compares the previews while a machine, and the control plane, are being
// deleted.
func TestRunlevelControlPlanePreviewsOfDeletions(t *testing.T) {
	t.Parallel()
	s := newPlane(t)
	m, plane := &clusterv1.Machine{ObjectMeta: s.Meta("a")}, &v1alpha1.RunlevelControlPlane{ObjectMeta: s.Meta("plane")}
	for _, object := range []client.Object{m, plane} {
		s.MustPatch(object, `{"metadata":{"finalizers":["example.com/test"]}}`)
		s.Must(s.Client.Delete(s.Context(), object))
		if object == m {
			s.expectPlane("a deletion", fmt.Sprintf(runlevelControlPlane, 0, "v1.35.0", "small"), coveringVersions(t), `
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 0
machine a: is being deleted
machine b: stays as it is
machine c: stays as it is

  1  create  new 1  (there are 2 of 3 machines)
`)
		}
	}
	_, err := s.makePreview(planeQuery, "")
	if err == nil || !strings.HasSuffix(err.Error(), "/plane is being deleted, and its machines with it") {
		t.Errorf("of a control plane being deleted: %v", err)
	}
	for _, object := range []client.Object{m, plane} {
		s.MustPatch(object, `{"metadata":{"finalizers":null}}`)
	}
}
