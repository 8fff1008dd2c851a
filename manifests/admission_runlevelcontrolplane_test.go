package manifests_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/capi/controlplane/v1alpha1"
)

const (
	template  = `machineTemplate: {spec: {infrastructureRef: {apiGroup: a.com, kind: RackTemplate, name: r}, bootstrap: {dataSecretName: s}}}`
	unbooted  = `machineTemplate: {spec: {infrastructureRef: {apiGroup: a.com, kind: RackTemplate, name: r}, bootstrap: {}}}`
	noSurge   = `rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}`
	manySurge = `rollout: {strategy: {rollingUpdate: {maxSurge: 2}}}`
)

// TestAdmissionOfRunlevelControlPlanes refuses control planes that could not work, with what to write instead.
func TestAdmissionOfRunlevelControlPlanes(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	for _, test := range []struct{ spec, want string }{
		{`{version: v1.36.0, ` + template + `}`, ``},
		{`{version: v1.36.0, replicas: 3, ` + noSurge + `, ` + template + `}`, ``},
		{`{version: v1.36.0, replicas: 2, ` + template + `}`, `must be odd: write 1, 3, 5 or 7`},
		{`{version: v1.36.0, replicas: 0, ` + template + `}`, `should be greater than or equal to 1`},
		{`{version: "1.36", ` + template + `}`, `spec.version in body should match`},
		{`{version: v1.36.0, ` + noSurge + `, ` + template + `}`,
			`maxSurge is 0, which needs spec.replicas of 3 or more`},
		{`{version: v1.36.0, ` + manySurge + `, ` + template + `}`, `should be less than or equal to 1`},
		{`{version: v1.36.0, ` + unbooted + `}`, `write configRef or dataSecretName`},
	} {
		err := c.Create(t.Context(), newRunlevelControlPlane(t, namespace, test.spec), client.DryRunAll)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.spec, err)
		}
	}
	plane := newRunlevelControlPlane(t, namespace, `{version: v1.36.2, `+template+`}`)
	if err := c.Create(t.Context(), plane); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"v1.36.1": "", "v1.37.0": "", "v1.38.0": "skips a minor version",
		"v1.35.9": "goes back to an older minor version",
	} {
		err := c.Patch(t.Context(), plane.DeepCopy(),
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"version":"`+version+`"}}`)),
			client.DryRunAll)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v", version, err)
		}
	}
}

func newRunlevelControlPlane(t *testing.T, namespace, spec string) *v1alpha1.RunlevelControlPlane {
	t.Helper()
	plane := &v1alpha1.RunlevelControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shop"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &plane.Spec); err != nil {
		t.Fatal(err)
	}
	return plane
}
