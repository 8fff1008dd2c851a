package rehearse_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/rehearse"
)

func TestReadyRules(t *testing.T) {
	rules := rehearse.ReadyRules{}
	if err := rules.Add("Database.shop.example={phase: Running}"); err != nil {
		t.Fatal(err)
	}
	if err := rules.Read([]byte(
		"Certificate.cert-manager.io: Ready\nQueue.shop.example: {ready: true}\n",
	)); err != nil {
		t.Fatal(err)
	}
	condition := rules[schema.GroupKind{
		Group: "cert-manager.io",
		Kind:  "Certificate",
	}]["conditions"].([]any)[0].(map[string]any)
	if condition["type"] != "Ready" || condition["status"] != "True" {
		t.Errorf("the condition is %v", condition)
	}
	delete(rules, schema.GroupKind{Group: "cert-manager.io", Kind: "Certificate"})
	want := rehearse.ReadyRules{
		{Group: "shop.example", Kind: "Database"}: {"phase": "Running"},
		{Group: "shop.example", Kind: "Queue"}:    {"ready": true},
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Error(diff)
	}
	for rule, cause := range map[string]string{
		"Database.shop.example":    `"Database.shop.example" has no status: write KIND.GROUP=CONDITION, or KIND.GROUP={phase: Ready}`,
		"Database=Ready":           `"Database" is not a kind of custom resources: write KIND.GROUP, as in Certificate.cert-manager.io`,
		"Database.shop.example=3":  `Database.shop.example: "3" is neither the name of a condition nor a status such as {phase: Ready}`,
		"Database.shop.example={a": `Database.shop.example: the status is not valid YAML: error converting YAML to JSON: yaml: line 1: did not find expected ',' or '}'`,
	} {
		if err := rules.Add(rule); err == nil || err.Error() != cause {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
