package lint_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestRepeatedFindings: if a mistake is found with and without a rehearsal, lint reports one finding of both.
func TestRepeatedFindings(t *testing.T) {
	const path = "0000_50_shop_01_service.yaml"
	files := fstest.MapFS{path: {Data: []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: " +
		"default}\nspec:\n  type: NodePort\n  ports:\n  - {name: a, port: 99999}\n  - {name: b, port: 80, nodePort: " +
		"32080}\n")}}
	read, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
	if err != nil {
		t.Fatal(err)
	}
	observed := func(index string, field string) lint.Observation {
		return lint.Observation{
			Rule: lint.RehearsalRefused, Path: path, Line: 1, Object: "Service default/web",
			Field: []string{"spec", "ports", index, field}, Message: "the API server refuses it: " + field,
		}
	}
	result := run(t, lint.Input{
		Payload:  read,
		Problems: problems,
		Rehearsal: &lint.Rehearsal{
			Observations: []lint.Observation{observed("0", "port"), observed("1", "nodePort")},
		},
	})
	if found := linesOf(result.Findings, lint.RehearsalRefused); found != path+
		":8:25: error: Service default/web: the API server refuses it: nodePort [rehearsal-refused]\n" {
		t.Errorf("the rehearsal finds\n%s", found)
	}
	both := map[string][]lint.Check{}
	for _, f := range result.Findings {
		both[f.Rule] = f.FoundBy
		isMarked := strings.HasSuffix(f.Message, " (the rehearsal shows it, too)")
		if isMarked != (len(f.FoundBy) > 1) {
			t.Errorf("the message does not match %v: %s", f.FoundBy, f.Message)
		}
	}
	want := map[string][]lint.Check{
		"invalid-traffic": {lint.ByLint, lint.ByRehearsal}, lint.RehearsalRefused: {lint.ByRehearsal},
	}
	if diff := cmp.Diff(want, both); diff != "" {
		t.Errorf("other checks find them (-want +got):\n%s", diff)
	}
}
