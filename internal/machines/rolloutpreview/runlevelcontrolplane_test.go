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
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/rolloutpreview"
	"github.com/runlevel/runlevel/internal/sandbox/runtimehooktest"
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

// newPlane makes a control plane with machines a, b and c that are available, and whose provider has set a field of their infrastructure.
func newPlane(t *testing.T) *controlPlaneScene {
	s := &controlPlaneScene{stage.NewFixture(t)}
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

func (s *controlPlaneScene) setAvailable(name string, status metav1.ConditionStatus, message string) {
	s.Helper()
	const condition = `{"type":%q,"status":%q,"reason":"Observed","message":%q,"lastTransitionTime":"2026-01-02T03:05:00Z"}`
	s.MustPatchStatus(&clusterv1.Machine{ObjectMeta: s.Meta(name)}, `{"status":{"nodeRef":{"name":"node"},"conditions":[`+condition+`,`+condition+`]}}`, "Ready", status, message, "Available", status, message)
}

// previewPlane previews a control plane in a file.
func (s *controlPlaneScene) previewPlane(text string, extension rolloutpreview.ExtensionQuery) *rolloutpreview.ControlPlanePreview {
	s.Helper()
	wanted, err := rolloutpreview.ReadRunlevelControlPlane("new.yaml", []byte(text), "plane")
	s.Must(err)
	p, err := rolloutpreview.PreviewRunlevelControlPlane(s.Context(), stage.Connect(s), rolloutpreview.RunlevelControlPlaneQuery{
		Namespace: s.Namespace, Name: "plane", Wanted: wanted, Extension: extension,
	})
	s.Must(err)
	return p
}

func (s *controlPlaneScene) expectPlane(what, text string, extension rolloutpreview.ExtensionQuery, want string) {
	s.Helper()
	got := strings.ReplaceAll(strings.Join(s.previewPlane(text, extension).Lines(), "\n"), s.Namespace+"/", "")
	if want = strings.TrimPrefix(want, "\n"); !strings.HasPrefix(got, want) {
		s.Errorf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// coveringVersions returns an extension that can change the version of a machine, and nothing else.
func coveringVersions(t *testing.T) rolloutpreview.ExtensionQuery {
	extension := runtimehooktest.New(t)
	const handler = `{"name":"%s","requestHook":{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","hook":"%s"}}`
	extension.Answer("Discovery", fmt.Sprintf(`{"status":"Success","handlers":[`+handler+`,`+handler+`]}`, "can", "CanUpdateMachine", "do", "UpdateMachine"))
	patch := base64.StdEncoding.EncodeToString([]byte(`{"spec":{"version":"v1.36.0"}}`))
	extension.Answer("CanUpdateMachine", fmt.Sprintf(`{"status":"Success","machinePatch":{"patchType":"JSONMergePatch","patch":%q}}`, patch))
	return rolloutpreview.ExtensionQuery{URL: extension.ClientConfig().URL, CA: extension.CA()}
}

// TestRunlevelControlPlanePreviews compares what is told of control planes, with an extension and without, and of a machine that is down.
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
	s.expectPlane("with a surge, the last one goes", fmt.Sprintf(runlevelControlPlane, 1, "v1.36.0", "small"), covering, `
RunlevelControlPlane plane: Active, RollingUpdate, maxSurge 1
machine a: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine b: is updated in place
  changes: Version v1.35.0, v1.36.0 required
  by extension can.extension
machine c: is replaced
  changes: Version v1.35.0, v1.36.0 required

  1  create           new 1  (one more than wanted, before an outdated one goes (maxSurge))
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
		t.Errorf("a machine that is down, and not outdated: %s", strings.Join(p.Lines(), "\n"))
	}
	p = s.previewPlane(fmt.Sprintf(runlevelControlPlane, 0, "v1.36.0", "small"), covering)
	if first := p.Steps[0]; first.Action != rolloutpreview.DeleteMachine || first.Machine != "b" || first.Reason != "it is outdated, and not ready" {
		t.Errorf("a machine that is down does not go first: %s", strings.Join(p.Lines(), "\n"))
	}
}
