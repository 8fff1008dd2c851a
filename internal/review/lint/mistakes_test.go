package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestMistakes lints each mistake, and compares the findings with testdata/mistakes.txt: a finding is useful
// if it mentions the mistake, and otherwise misleading.
func TestMistakes(t *testing.T) {
	all, err := mistakes.All()
	if err != nil {
		t.Fatal(err)
	}
	shop, err := mistakes.Shop()
	if err != nil {
		t.Fatal(err)
	}
	if found := lintFiles(t, shop, nil); len(found) > 0 {
		t.Fatalf("the release has mistakes of its own: %q", found)
	}
	var table mistakes.Table
	for _, m := range all {
		table.Add(m, outcomeOf(t, m, shop))
	}
	const golden = "testdata/mistakes.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("other mistakes are found (-want +got):\n%s", diff)
	}
}

// TestOutages lints each outage as an update. Those that it misses have a reason in their table.
func TestOutages(t *testing.T) {
	all, err := mistakes.Outages()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.Family+"/"+m.Name, func(t *testing.T) {
			previous, err := m.Previous()
			if err != nil {
				t.Fatal(err)
			}
			release, _, err := m.Release()
			if err != nil {
				t.Fatal(err)
			}
			found := lintFiles(t, release, previous)
			want := []string{"found"}
			switch {
			case m.Group == mistakes.Fine:
				want = []string{"quiet"}
			case m.Missed != "":
				want = []string{"missed", "misleading"}
			}
			if outcome := m.Outcome(found); !slices.Contains(want, outcome) {
				t.Errorf("it is %s instead of %s: %q", outcome, strings.Join(want, " or "), found)
			}
		})
	}
}

// outcomeOf lints a mistake, as an update of the release unless it is one of a first creation.
func outcomeOf(t *testing.T, m mistakes.Mistake, shop fstest.MapFS) string {
	t.Helper()
	release, _, err := m.Release()
	if err != nil {
		t.Fatal(err)
	}
	previous := shop
	if m.Group == mistakes.Create || m.Group == mistakes.Within {
		previous = nil
	}
	return m.Outcome(lintFiles(t, release, previous))
}

// lintFiles returns the errors and warnings of a release, compared with the one before if there is one.
func lintFiles(t *testing.T, release, previous fstest.MapFS) (found []string) {
	t.Helper()
	o := payload.Options{KeepText: true}
	input := lint.Input{}
	var err error
	if input.Payload, input.Problems, err = payload.Load(t.Context(), release, o); input.Payload == nil {
		return []string{err.Error()}
	}
	if previous != nil {
		if input.Previous, _, err = payload.Load(t.Context(), previous, o); err != nil {
			t.Fatal(err)
		}
	}
	result, err := lint.Run(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range result.Findings {
		if finding.Severity.AtLeast(lint.Warning) {
			found = append(found, finding.String())
		}
	}
	return found
}
