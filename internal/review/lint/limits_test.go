package lint_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// hats is a definition whose fields have rules.
func hats(group int, fields string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: hats.g%[1]d.example.com}
spec:
  group: g%[1]d.example.com
  names: {kind: Hat, plural: hats, listKind: HatList, singular: hat}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {%[2]s}}}
`, group, fields)
}

func parsed(t *testing.T, files fstest.MapFS) *payload.Payload {
	t.Helper()
	p, problems := read(t, files)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return p
}

func messages(found []lint.Finding) string {
	var lines strings.Builder
	for _, f := range found {
		fmt.Fprintf(&lines, "%s: %s\n", f.Object, f.Message)
	}
	return lines.String()
}

// A payload of 60,000 rules would take half a minute.
func TestCheckedDefinitionsAreLimited(t *testing.T) {
	var fields strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&fields, "p%d: {type: string, x-kubernetes-validations: [{rule: 'self != \"%d\"'}]}, ", i, i)
	}
	found := messages(run(t, lint.Input{Payload: parsed(t, fstest.MapFS{
		"0000_10_a_1.yaml": text(hats(1, "a: {type: string, x-kubernetes-validations: [{rule: self != 'a'}]}")),
		"0000_10_a_2.yaml": text(hats(2, fields.String())),
		"0000_10_a_3.yaml": text(hats(3, "a: {type: string}")),
	})}).Findings)
	for group, isChecked := range map[int]bool{1: true, 2: false, 3: false} {
		line := fmt.Sprintf("CustomResourceDefinition hats.g%d.example.com: its schema is not checked: definitions "+
			"of the release have more than 12000 CEL rules\n", group)
		if strings.Contains(found, line) == isChecked {
			t.Errorf("definition %d is checked: %t\n%s", group, !isChecked, found)
		}
	}
}

// The API server allows the rules of each of these objects to cost a second.
func TestRulesOfManyCustomResourcesAreBounded(t *testing.T) {
	ones := "[" + strings.Repeat("1,", 29) + "1]"
	files := fstest.MapFS{
		"0000_10_a_a.yaml": text(hats(1,
			"l: {type: array, maxItems: 30, items: {type: integer}, x-kubernetes-validations: [{rule: 'self.all(x, "+
				"self.all(y, self.all(z, x + y + z > 0)))'}]}")),
		"0000_10_a_b.yaml": text(hats(2,
			"l: {type: array, maxItems: 30, items: {type: integer}, x-kubernetes-validations: [{rule: 'self.size() "+
				"!= 1'}]}")),
	}
	var dear strings.Builder
	for i := range 1_000 {
		fmt.Fprintf(&dear, "---\n{apiVersion: g1.example.com/v1, kind: Hat, metadata: {name: a%d}, l: %s}\n", i, ones)
	}
	files["0000_20_a_a.yaml"] = text(dear.String())
	files["0000_20_a_b.yaml"] = text("{apiVersion: g2.example.com/v1, kind: Hat, metadata: {name: cheap}, l: [1]}")
	found := messages(run(t, lint.Input{Payload: parsed(t, files)}).Findings)
	for _, want := range []string{
		"Hat a0: its CEL rules were not checked: with those of the other custom resources they cost too much\n",
		"Hat cheap: l: failed rule: self.size() != 1\n",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("got\n%.2000s\nwant %s", found, want)
		}
	}
}
