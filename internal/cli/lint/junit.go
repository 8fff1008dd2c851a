package lint

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// asJUnit is the format in which most CI servers take the results of tests.
const asJUnit core.Output = "junit"

// The elements of JUnit's XML that a report has. There are no times in it: the same
// findings make the same report.
type (
	junitReport struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   int        `xml:"errors,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"` // none: a rule runs, or it is skipped
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Skipped *junitMessage `xml:"skipped"`
		Failure *junitMessage `xml:"failure"`
		Out     *junitText    `xml:"system-out"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		junitText
	}
	junitText struct {
		Text string `xml:",cdata"`
	}
)

// junit returns the report as results of tests, one for each rule that is not turned off.
// A rule fails if one of its findings fails; its other findings are its output.
func (r LintReport) junit(fails func(lint.Finding) bool) junitReport {
	failures, others := map[string][]lint.Finding{}, map[string][]lint.Finding{}
	for _, f := range r.Findings {
		if fails(f) {
			failures[f.Rule] = append(failures[f.Rule], f)
		} else {
			others[f.Rule] = append(others[f.Rule], f)
		}
	}
	const name = "runlevel lint"
	suite := junitSuite{Name: name}
	for _, s := range r.Skipped {
		suite.Skipped++
		suite.add(s.Rule).Skipped = &junitMessage{Message: "needs " + s.Needs}
	}
	for _, id := range r.Ran {
		test := suite.add(id)
		if found := failures[id]; len(found) > 0 {
			suite.Failures++
			test.Failure = junitFailure(id, found)
		}
		if found := others[id]; len(found) > 0 {
			test.Out = &junitText{linesOf(found)}
		}
	}
	return junitReport{Name: name, Tests: suite.Tests, Failures: suite.Failures, Suite: suite}
}

// add adds the test of a rule.
func (s *junitSuite) add(rule string) *junitCase {
	s.Tests++
	s.Cases = append(s.Cases, junitCase{Class: "runlevel.lint", Name: rule})
	return &s.Cases[len(s.Cases)-1]
}

// junitFailure returns the findings of a rule. Servers show the message in lists.
func junitFailure(id string, found []lint.Finding) *junitMessage {
	rule, _ := lint.FindRule(id)
	return &junitMessage{
		Message:   fmt.Sprintf("%s: %s", printable.Count(len(found), "finding"), rule.Summary),
		Type:      string(found[0].Severity),
		junitText: junitText{linesOf(found)},
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

// write writes the report as XML.
func (j junitReport) write(out io.Writer) error {
	content, err := xml.MarshalIndent(j, "", "  ")
	_, printed := fmt.Fprintf(out, "%s%s\n", xml.Header, content)
	return errors.Join(err, printed)
}
