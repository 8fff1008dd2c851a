package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
)

// TestWorstFindingsComeFirst makes the page of many notes and of two errors, the last of all findings.
func TestWorstFindingsComeFirst(t *testing.T) {
	report := Report{Rehearsal: &RehearsalInfo{Stages: []rehearse.Stage{{Name: "install"}}}}
	for i := range maxFindings {
		report.Findings = append(report.Findings,
			lint.Finding{File: fmt.Sprintf("notes-%04d.yaml", i/10), Severity: lint.Info, Rule: "deprecated"})
	}
	report.Findings = append(report.Findings,
		lint.Finding{File: "bad.yaml", Severity: lint.Warning, Rule: "dropped", Message: "a warning"},
		lint.Finding{File: "bad.yaml", Severity: lint.Error, Rule: "out-of-order", Message: "an error"},
		lint.Finding{File: "bad.yaml", Severity: lint.Error, Rule: "out-of-order", Message: "an error"})
	var out strings.Builder
	if err := report.page("Lint", false).WriteFile(&out); err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(out.String(), "<section")
	last := -1
	for _, want := range []string{
		"<details open><summary><h3>bad.yaml</h3>", "2 errors", "1 warning", "an error", "an error", "a warning",
		"<details><summary><h3>notes-0000.yaml</h3>", "10 notes", "and 3 more findings", `id="rehearsal"`, `id="rules"`,
		`<div id="rule-`, // within the details, which a link then opens
	} {
		place := strings.Index(page[last+1:], want)
		if place < 0 {
			t.Fatalf("%q is missing, or too early in\n%s", want, page[:min(len(page), 5_000)])
		}
		last += 1 + place
	}
	if notes := strings.Count(page, ">note<"); notes != maxFindings-3 {
		t.Errorf("%d notes are on the page", notes)
	}
}
