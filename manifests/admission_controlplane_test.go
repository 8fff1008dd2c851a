package manifests_test

import (
	"context"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// newControlPlane returns a ControlPlaneMachineSet whose template has other fields, and an infrastructure object.
func newControlPlane(t *testing.T, namespace, role, fields, value string) *machinev1.ControlPlaneMachineSet {
	t.Helper()
	set := &machinev1.ControlPlaneMachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster"}}
	text := `{replicas: 3, selector: {matchLabels: {machine.openshift.io/cluster-api-machine-role: ` + role +
		`}}, template: {
		machineType: machines_v1beta1_machine_openshift_io, machines_v1beta1_machine_openshift_io: {` + fields + `
			metadata: {labels: {machine.openshift.io/cluster-api-cluster: shop, machine.openshift.io/cluster-api-machine-role: master, machine.openshift.io/cluster-api-machine-type: master}},
			spec: {providerSpec: {value: ` + value + `}}}}}`
	if err := yaml.UnmarshalStrict([]byte(text), &set.Spec); err != nil {
		t.Fatal(err)
	}
	return set
}

// TestAdmissionOfControlPlanes refuses what OpenShift's webhook refuses, as far as it needs no machines for it.
func TestAdmissionOfControlPlanes(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	const external = `apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine`
	const google = `failureDomains: {platform: GCP, gcp: [{zone: a}]}, `
	sandboxtest.Eventually(t, "the policy is in force", func(ctx context.Context) bool {
		err := c.Create(ctx, newControlPlane(t, namespace, "worker", "", `{`+external+`}`), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "selector does not match template labels")
	})
	for _, test := range []struct{ role, fields, value, want string }{
		{"master", "", `{` + external + `}`, ``},
		{"master", google, `{` + external + `}`, ``},
		{"master", "", `{` + external + `, failureDomains: [{failureDomain: a}]}`, ``},
		{"master", "", `{` + external + `, failureDomains: [a]}`, `write a list of objects`},
		{"master", "", `{` + external + `, failureDomains: a}`, `write a list of objects`},
		{"master", google, `{` + external + `, failureDomains: [{failureDomain: a}]}`, `remove one of them`},
		{"worker", "", `{` + external + `}`, `selector does not match template labels`},
		{"master", "", `{kind: ExternalMachine}`, `name the apiVersion and the kind`},
	} {
		err := c.Create(t.Context(), newControlPlane(t, namespace, test.role, test.fields, test.value),
			client.DryRunAll)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	other := newControlPlane(t, namespace, "master", "", `{`+external+`}`)
	other.Name = "other"
	if err := c.Create(t.Context(), other); err == nil ||
		!strings.Contains(err.Error(), "control plane machine set name must be cluster") {
		t.Errorf("another name: %v", err)
	}
	set := newControlPlane(t, namespace, "master", "", `{`+external+`}`)
	set.Finalizers = []string{"example.com/held"}
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	const active = `{spec: {state: Active}}`
	if err := patch(t, c, set, active); err != nil {
		t.Errorf("activating the set: got error %v, want nil", err)
	}
	if err := patch(t, c, set, `{spec: {replicas: 5}}`); err == nil ||
		!strings.Contains(err.Error(), "replicas is immutable") {
		t.Errorf("its replicas are changed: %v", err)
	}
	if err := c.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	if err := patch(t, c, set, active); err == nil ||
		!strings.Contains(err.Error(), "with deletion timestamp cannot be activated") {
		t.Errorf("activating a terminating set: got error %v, want a refusal", err)
	}
	if err := c.Patch(t.Context(), set,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Error(err)
	}
}

// TestDeletionsOfControlPlanes refuses the deletion that would end with the machines of a control plane.
func TestDeletionsOfControlPlanes(t *testing.T) {
	t.Parallel()
	c, namespace := admission(t)
	const external = `{apiVersion: infrastructure.runlevel.dev/v1alpha1, kind: ExternalMachine}`
	set := newControlPlane(t, namespace, "master", "", external)
	if err := c.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, "the policy is in force", func(ctx context.Context) bool {
		err := c.Delete(ctx, set, client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationForeground))
		return err != nil && strings.Contains(err.Error(),
			"would delete the machines of the control plane: delete with --cascade=background")
	})
	all := []client.DeleteAllOfOption{client.InNamespace(namespace),
		client.PropagationPolicy(metav1.DeletePropagationForeground)}
	if err := c.DeleteAllOf(t.Context(), set.DeepCopy(), all...); err == nil {
		t.Error("all sets of a namespace are deleted in the foreground")
	}
	for _, option := range []client.DeleteOption{
		&client.DeleteOptions{}, client.PropagationPolicy(metav1.DeletePropagationBackground),
		client.PropagationPolicy(metav1.DeletePropagationOrphan),
	} {
		if err := c.Delete(t.Context(), set, client.DryRunAll, option); err != nil {
			t.Errorf("%v: %v", option, err)
		}
	}
}
