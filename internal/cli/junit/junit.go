// Package junit writes test results in the format that most CI servers read.
//
// The package has only those elements of JUnit's XML that reports of this program use. The caller determines the tests
// and their results.
//
// Suite.Add adds a test, and Suite.Write writes the XML. Start with Suite.
package junit

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"

	"github.com/runlevel/runlevel/internal/cli/core"
)

// Format is the format.
const Format core.Output = "junit"

// A Suite is the tests of one run.
type Suite struct {
	Name     string  `xml:"name,attr"`
	Tests    int     `xml:"tests,attr"`
	Failures int     `xml:"failures,attr"`
	Errors   int     `xml:"errors,attr"` // none: a test has passed or failed, or it is skipped
	Skipped  int     `xml:"skipped,attr"`
	Time     string  `xml:"time,attr,omitempty"` // seconds
	Cases    []*Case `xml:"testcase"`
}

// A Case is one test.
type Case struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Time    string       `xml:"time,attr,omitempty"` // seconds
	Skipped *CaseMessage `xml:"skipped"`
	Failure *CaseMessage `xml:"failure"`
	Out     *Text        `xml:"system-out"`
}

// A CaseMessage contains the reason why a test failed or was skipped. CI servers show the attribute message in lists.
type CaseMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text
}

// A Text is the output of a test. It must have no characters that XML can't represent.
type Text struct {
	Text string `xml:",cdata"`
}

// Add adds a test, which has passed unless it is changed.
func (s *Suite) Add(class, name string) *Case {
	s.Cases = append(s.Cases, &Case{Class: class, Name: name})
	return s.Cases[len(s.Cases)-1]
}

// Write writes the suite as XML.
func (s *Suite) Write(out io.Writer) error {
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		if c.Failure != nil {
			s.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
	}
	report := struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Time     string   `xml:"time,attr,omitempty"`
		Suite    *Suite   `xml:"testsuite"`
	}{Name: s.Name, Tests: s.Tests, Failures: s.Failures, Time: s.Time, Suite: s}
	content, err := xml.MarshalIndent(report, "", "  ")
	_, writeErr := fmt.Fprintf(out, "%s%s\n", xml.Header, content)
	return errors.Join(err, writeErr)
}

// Seconds returns a duration in seconds as the format has it.
func Seconds(seconds float64) string { return fmt.Sprintf("%.3f", seconds) }
