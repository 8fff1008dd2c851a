package lint_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/lint"
)

// TestDocumentation compares the index of docs/lint.md with the rules.
func TestDocumentation(t *testing.T) {
	const file, marker = "../../../docs/lint.md", "from the rules. -->\n"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(have), marker)
	if !found {
		t.Fatalf("%s has no line that ends with %q", file, marker)
	}
	var want strings.Builder
	want.WriteString(head + marker + "\n| rule | severity | finds |\n|---|---|---|\n")
	for _, rule := range lint.Rules() {
		fmt.Fprintf(&want, "| [%s](../internal/review/lint/rules/%s.txtar) | %s | %s |\n", rule.ID, rule.ID,
			rule.Severity, rule.Summary())
	}
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), string(have)); diff != "" {
		t.Errorf("%s differs from the rules: run make generate\n%s", file, diff)
	}
}
