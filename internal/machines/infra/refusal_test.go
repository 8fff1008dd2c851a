package infra_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/machines/infra"
	"github.com/runlevel/runlevel/internal/sandbox/machinetest"
)

// keepVaults is a policy of an administrator, and its binding.
var keepVaults = []string{`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keep-vaults}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [infra.example.com], apiVersions: ["*"], operations: [DELETE], resources: [vaults]}
  validations: [{expression: "false", message: vaults are kept until the audit}]
`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keep-vaults}
spec: {policyName: keep-vaults, validationActions: [Deny]}
`}

// TestADeleteThatAdmissionRefuses: the template has nothing to do with it.
func TestADeleteThatAdmissionRefuses(t *testing.T) {
	t.Parallel()
	serve(t, "Vault", "vaults")
	objects := &infra.Objects{Client: shared.Client(t)}
	m := machineOf(t, shared.Namespace(t), "m", `{"apiVersion": "infra.example.com/v1", "kind": "Vault", "spec": {}}`)
	mustCreate(t, objects, m)
	for _, text := range keepVaults {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := admin(t).Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	machinetest.Await(t, shared.Client(t), &corev1.Namespace{}, client.ObjectKey{Name: m.Namespace},
		func(*corev1.Namespace) bool {
			return shared.Client(t).Delete(t.Context(), read(t, m), client.DryRunAll) != nil
		})
	_, err := objects.Delete(t.Context(), m)
	if err == nil || errors.As(err, new(*infra.InvalidError)) {
		t.Fatalf("%T %v", err, err)
	}
	begin := "delete Vault " + m.Namespace + "/m: the delete was refused: "
	const by, why = "ValidatingAdmissionPolicy 'keep-vaults'", "vaults are kept until the audit"
	if text := err.Error(); !strings.HasPrefix(text, begin) || !strings.Contains(text, by) ||
		!strings.Contains(text, why) {
		t.Errorf("got error %q, want %q with %q and %q", text, begin, by, why)
	}
}
