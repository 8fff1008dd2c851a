package ownership_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
)

// TestLeftoversAreNearWhatIsRefused: of all that a live object has and a draft does not, only that counts which both
// have nearest to a field that the server has refused.
func TestLeftoversAreNearWhatIsRefused(t *testing.T) {
	const (
		strategy = "spec: {a: 1, strategy: {type: X, rollingUpdate: {b: 1}}}"
		probes   = "spec: {containers: [{name: a, tty: true, probe: {http: {}, period: 1}}, {name: b, probe: {http: " +
			"{}}}, {name: old, probe: {http: {}}}]}"
	)
	for name, test := range map[string]struct{ live, draft, refused, want string }{
		"a member": {strategy, "spec: {strategy: {type: Y}}", "spec.strategy.rollingUpdate",
			".spec.strategy.rollingUpdate"},
		"the union": {strategy, "spec: {strategy: {type: Y}}", "spec.strategy", ".spec.strategy.rollingUpdate"},
		"a field of neither": {strategy, "spec: {strategy: {type: Y}}", "spec.strategy.other.field",
			".spec.strategy.rollingUpdate"},
		"a field of an old version": {strategy, "spec: {strategy: {type: Y}}", "spec.other",
			".spec.a .spec.strategy.rollingUpdate"},
		"an item": {probes,
			"spec: {containers: [{name: b, probe: {exec: {}}}, {name: a, probe: {exec: {}}}]}",
			"spec.containers[1].probe.exec",
			`.spec.containers[name="a"].probe.http .spec.containers[name="a"].probe.period .spec.containers[name="b"].probe.http`},
		"a missing item": {probes, "spec: {containers: [{name: a}]}", "spec.containers[0].probe.exec",
			`.spec.containers[name="a"].probe .spec.containers[name="a"].tty`},
		"items without names": {"rules: [{a: 1}]", "rules: [{b: 1}]", "rules[0].a", ""},
		"a key":               {"binaryData: {a.b: x}", "data: {a.b: x}", "data[a.b]", ".binaryData"},
		"a whole custom resource": {"metadata: {name: x, uid: y}\nspec: {a: {x: 1}}\nstatus: {z: 1}",
			"metadata: {name: x}\nspec: {b: 1}", "<nil>", ".spec.a"},
		"nothing that the draft has not": {"spec: {a: 1}", "spec: {a: 2, b: 1}", "spec.a", ""},
		"the same twice": {strategy, "spec: {strategy: {type: Y}}",
			"spec.strategy.rollingUpdate spec.strategy.type", ".spec.strategy.rollingUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			found := ownership.FindLeftovers(parsed(t, test.live), parsed(t, test.draft), strings.Fields(test.refused))
			var names []string
			for _, path := range found.Fields {
				names = append(names, path.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(names, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func parsed(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: object}
}
