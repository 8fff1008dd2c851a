package apply

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/junit"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A testPrinter prints the results of tests once they end, and the events before.
type testPrinter struct {
	out, progress io.Writer
}

// run runs tests, and prints their results and the summary.
func (p *testPrinter) run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, tests []*payload.Manifest,
	o releasetest.Options) *releasetest.Report {
	o.OnEvent = p.event
	report := releasetest.Run(ctx, c, release, tests, o)
	fmt.Fprintln(p.out, testSummary(report))
	if remaining := leftTests(report); len(remaining) > 0 {
		fmt.Fprintf(p.out, "  kept on the cluster until the next run of each test, or an uninstall: %s\n",
			printable.Line(strings.Join(remaining, ", ")))
	}
	return report
}

// record writes the results into the record of the release, or prints the error of the write.
func (p *testPrinter) record(ctx context.Context, recorder releasetest.ResultRecorder, report *releasetest.Report) {
	if err := recorder.Record(ctx, report.Release, report, nil); err != nil {
		core.Warn(p.progress,
			[]string{printable.Line("the results of the tests are not in the record: " + err.Error())})
	}
}

// event prints an event.
func (p *testPrinter) event(event releasetest.Event) {
	result := event.Result
	switch {
	case len(event.Waits) > 0:
		for _, line := range event.Waits {
			fmt.Fprintln(p.progress, printable.Line(fmt.Sprintf("%-11s %s: %s", "waits", result.Object, line)))
		}
	case result.State == releasetest.Running:
		fmt.Fprintln(p.progress, printable.Line(fmt.Sprintf("%-11s %s", result.State, result.Object)))
	default:
		text := fmt.Sprintf("%-11s %s in %s", result.State, result.Object, roundSeconds(result.Seconds))
		if result.Message != "" {
			text += ": " + result.Message
		}
		// its reader may end before the tests do
		_ = core.PrintLines(p.out, append([]string{printable.Line(text)}, testDetails(result)...))
	}
}

// roundSeconds returns a duration in a readable precision.
func roundSeconds(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
}

// testDetails returns the results of a test's pods.
func testDetails(result releasetest.Result) []string {
	var lines []string
	for _, reason := range result.Why {
		lines = append(lines, "  "+printable.Line(reason))
	}
	for _, container := range result.Containers {
		line := printable.Line(fmt.Sprintf("  Pod %s, container %s", container.Pod, container.Name))
		if container.ExitCode != nil {
			line += fmt.Sprintf(": exit code %d", *container.ExitCode)
		}
		lines = append(lines, line)
		for _, text := range container.Log {
			lines = append(lines, "    | "+text)
		}
	}
	return lines
}

// testSummary returns the result of all tests in one line.
func testSummary(report *releasetest.Report) string {
	title := "release " + report.Release
	if report.Version != "" {
		title += " " + report.Version
	}
	text := fmt.Sprintf("%s: %d of %s passed", title, report.Passed, printable.Count(len(report.Tests), "test"))
	if report.Failed > 0 {
		text += fmt.Sprintf(", %d failed", report.Failed)
	}
	if report.NotRun > 0 {
		text += fmt.Sprintf(", %d not done", report.NotRun)
	}
	return printable.Line(fmt.Sprintf("%s in %s", text, roundSeconds(report.Seconds)))
}

// leftTests returns the tests whose objects are still on the cluster.
func leftTests(report *releasetest.Report) []string {
	var left []string
	for _, result := range report.Tests {
		if result.IsLeft {
			left = append(left, result.Object.String())
		}
	}
	return left
}

// testSuite returns the report in the format of CI servers.
func testSuite(report *releasetest.Report) *junit.Suite {
	suite := &junit.Suite{Name: "runlevel test " + report.Release, Time: junit.Seconds(report.Seconds)}
	for _, result := range report.Tests {
		test := suite.Add("runlevel.test."+report.Release, printable.Line(result.Object.String()))
		test.Time = junit.Seconds(result.Seconds)
		details := strings.Join(testDetails(result), "\n")
		switch result.State {
		case releasetest.Passed:
			if details != "" {
				test.Out = &junit.Text{Text: details}
			}
		case releasetest.Interrupted, releasetest.NotRun:
			test.Skipped = &junit.CaseMessage{Message: string(result.State)}
		default:
			test.Failure = &junit.CaseMessage{
				Message: result.Message,
				Type:    string(result.State),
				Text:    junit.Text{Text: details},
			}
		}
	}
	return suite
}
