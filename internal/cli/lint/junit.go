package lint

import (
	"fmt"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/junit"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// junit returns the report as results of tests, one for each enabled rule.
// A rule fails if one of its findings fails; its other findings are its output. There are no times in it: the same
// findings make the same report.
func (r Report) junit(fails func(lint.Finding) bool) *junit.Suite {
	failures, others := map[string][]lint.Finding{}, map[string][]lint.Finding{}
	for _, f := range r.Findings {
		if fails(f) {
			failures[f.Rule] = append(failures[f.Rule], f)
		} else {
			others[f.Rule] = append(others[f.Rule], f)
		}
	}
	const class = "runlevel.lint"
	suite := &junit.Suite{Name: "runlevel lint"}
	for _, s := range r.Skipped {
		suite.Add(class, s.Rule).Skipped = &junit.CaseMessage{Message: "needs " + s.Needs}
	}
	for _, id := range r.Ran {
		test := suite.Add(class, id)
		if found := failures[id]; len(found) > 0 {
			test.Failure = junitFailure(id, found)
		}
		if found := others[id]; len(found) > 0 {
			test.Out = &junit.Text{Text: linesOf(found)}
		}
	}
	return suite
}

// junitFailure returns the findings of a rule.
func junitFailure(id string, found []lint.Finding) *junit.CaseMessage {
	rule, _ := lint.FindRule(id)
	return &junit.CaseMessage{
		Message: fmt.Sprintf("%s: %s", printable.Count(len(found), "finding"), rule.Summary()),
		Type:    string(found[0].Severity),
		Text:    junit.Text{Text: linesOf(found)},
	}
}

// linesOf returns findings, one per line. They have no characters that XML can't represent.
func linesOf(findings []lint.Finding) string {
	var text strings.Builder
	for _, f := range findings {
		text.WriteString(f.String() + "\n")
	}
	return text.String()
}
