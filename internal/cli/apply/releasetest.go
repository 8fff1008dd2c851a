package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/junit"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// testFlags are the flags of runlevel test.
type testFlags struct {
	release core.ReleaseFlags
	cluster core.ClusterFlags
	format  core.Output
	options releasetest.Options
}

const testHelp = `Run the tests of a release, one after the other, and wait until each has ended.

A test is a Job or a Pod among the manifests of the release with the annotation
runlevel.dev/test: "true", or that of a chart's test: helm.sh/hook: test. It has passed if the
Job is complete, or the Pod ends with exit code 0. An apply leaves tests out.

NAME is a release on the cluster: the tests are those of the version that was applied last, from
the copy of its files on the cluster. If there is no copy, name the SOURCE that was applied.
If there is also a file or folder of that name, NAME means the release; write ./NAME for the file or
folder.
Each TEST is the name of a Job or Pod, or NAMESPACE/NAME; * stands for any text. Without one, all
tests run, in the order of their files, or of helm.sh/hook-weight.

Objects of an earlier run of a test are deleted first. A test that has passed is deleted; a
failed test stays, so that you can look at its pods, until it is run again or the release is
uninstalled. --keep keeps all tests. helm.sh/hook-delete-policy decides instead if a test has it.

The last lines of the logs of tests that fail are printed, with the exit codes of their containers,
and why a pod does not start.

After Ctrl-C, the current test continues, and no further test is started.

Exit codes: 0 when all tests have passed; 1 when one has failed, or a process applies the release;
2 for misuse: an unknown release or test, or a release without tests.

`

const testExamples = `  # All tests of the applied version
  runlevel test shop

  # Some tests, with their complete logs
  runlevel test shop smoke 'checkout-*' --logs all

  # In a pipeline: apply, test, and roll back if a test fails
  runlevel apply ./shop --name shop
  runlevel test shop -o junit > tests.xml || runlevel rollback shop --yes

  # Which tests does the release have?
  runlevel get manifests shop --only-tests

  # The files of the release are not kept on the cluster
  runlevel test ./shop --name shop`

// NewTest returns the verb test.
func NewTest(streams core.Streams) *cobra.Command {
	var f testFlags
	command := &cobra.Command{
		Use:               "test NAME|SOURCE [TEST...]",
		Short:             "Run the tests of a release",
		Long:              testHelp + core.SourceHelp,
		Example:           testExamples,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: f.complete,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], args[1:], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddNamespaceFlag(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, junit.Format)
	f.options.Logs = releasetest.FailedLogs
	core.AddChoice(command, &f.options.Logs, "logs",
		"the logs to print: failed (the last lines of tests that have not passed), all or none", releasetest.FailedLogs,
		releasetest.AllLogs, releasetest.NoLogs)
	flags := command.Flags()
	flags.BoolVar(&f.options.Keep, "keep", false, "also keep the tests that pass")
	flags.DurationVar(&f.options.Timeout, "timeout", releasetest.DefaultTimeout, "how long each test may take")
	return command
}

func (f *testFlags) run(ctx context.Context, ref string, names []string, streams core.Streams) error {
	if f.options.Timeout <= 0 {
		return core.Misusef("--timeout: %s is invalid: it must be greater than 0", f.options.Timeout)
	}
	ref, err := f.cluster.NameOrSource(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	release, c, err := f.cluster.ReadFor(ctx, &f.release, ref, streams.Err)
	if err != nil {
		return err
	}
	tests, err := chooseTests(release, names)
	if err != nil {
		return core.Misuse(err)
	}
	note, err := releasetest.Check(ctx, c, f.cluster.Namespace, release.Name, tests)
	switch {
	case reason.Of(err) == releasetest.ReasonUnknown:
		return core.Misuse(err)
	case err != nil:
		return err
	case note != "":
		core.Warn(streams.Err, []string{note})
	}
	printer := &testPrinter{out: streams.Out, progress: streams.Err}
	if f.format != core.Text {
		printer.out = streams.Err
	}
	report := printer.run(ctx, c, release, tests, f.options)
	recorder := releasetest.ResultRecorder{Cluster: c, Namespace: f.cluster.Namespace}
	printer.record(ctx, recorder, report)
	if err := f.print(streams.Out, report); err != nil {
		return err
	}
	return testError(report)
}

// print prints the report in another format than text.
func (f *testFlags) print(out io.Writer, report *releasetest.Report) error {
	switch f.format {
	case core.Text:
		return nil
	case junit.Format:
		return testSuite(report).Write(out)
	default:
		return f.format.Print(out, report, nil)
	}
}

// testError returns the error of tests that were interrupted, or have failed.
func testError(report *releasetest.Report) error {
	if report.Interrupted != nil {
		return report.Interrupted
	}
	return core.FailIf(!report.Done)
}

// chooseTests returns the named tests of a release; without names, all tests.
func chooseTests(release *payload.Payload, names []string) ([]*payload.Manifest, error) {
	if len(release.Tests) == 0 {
		return nil, errNoTests(release)
	}
	if len(names) == 0 {
		return release.Tests, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(release.Tests, func(m *payload.Manifest) bool { return isNamed(m, name) }) {
			return nil, fmt.Errorf("release %s has no test %q: it has %s", release.Name, name,
				printable.Line(strings.Join(testNames(release), ", ")))
		}
	}
	return slices.DeleteFunc(slices.Clone(release.Tests), func(m *payload.Manifest) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return isNamed(m, name) })
	}), nil
}

// errNoTests returns the error of a release without tests.
func errNoTests(release *payload.Payload) error {
	return fmt.Errorf(`release %s has no tests: a test is a Job or a Pod with the annotation %s: "true"`, release.Name,
		payload.TestAnnotation)
}

// isNamed reports whether a name or a pattern matches a test.
func isNamed(m *payload.Manifest, name string) bool {
	id := m.ID()
	isName, _ := path.Match(name, id.Name)
	isWhole, _ := path.Match(name, id.Namespace+"/"+id.Name)
	return isName || isWhole
}

// testNames returns the names of the tests of a release.
func testNames(release *payload.Payload) []string {
	var names []string
	for _, m := range release.Tests {
		names = append(names, m.ID().Name)
	}
	return names
}

// complete completes the name of a release, or a SOURCE, and then its tests.
func (f *testFlags) complete(command *cobra.Command, args []string,
	toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		names, _ := f.cluster.CompleteReleases(command, args, toComplete)
		return names, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(command.Context(), core.CompletionTimeout)
	defer cancel()
	ref, err := f.cluster.NameOrSource(ctx, args[0], io.Discard)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	release, err := f.release.Load(ctx, ref, io.Discard)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return testNames(release), cobra.ShellCompDirectiveNoFileComp
}

// checkTest returns an error if --test can't be done.
func (f *applyFlags) checkTest() error {
	switch {
	case !f.test:
		return nil
	case f.watch.isEnabled:
		return core.Misusef(`--test: with --watch the apply does not end: run "runlevel test" beside it`)
	case f.dryRun.IsEnabled():
		return core.Misusef("--test: a dry run applies no release to test: remove one of the two flags")
	case f.Session.Apply.NoWait:
		return core.Misusef("--test: --no-wait does not wait until all objects are ready: remove one of the two flags")
	default:
		return nil
	}
}

// A TestsEvent is the last event of an apply with tests.
type TestsEvent struct {
	Time time.Time `json:"time"`
	Type string    `json:"type"` // "tests"
	releasetest.Report
}

// test runs the tests of a release that was applied.
func (r *reporter) test(ctx context.Context, recorder releasetest.ResultRecorder, release *payload.Payload) error {
	c := recorder.Cluster
	if _, err := releasetest.Check(ctx, c, recorder.Namespace, release.Name, release.Tests); err != nil {
		err = fmt.Errorf("all is applied, and not tested: %w", err)
		return errors.Join(err, recorder.Record(ctx, release.Name, nil, err))
	}
	printer := &testPrinter{out: r, progress: r.streams.Err}
	if r.isQuiet || r.format == core.JSON {
		printer.progress = io.Discard
	}
	if r.format == core.JSON {
		printer.out = io.Discard
	}
	report := printer.run(ctx, c, release, release.Tests, releasetest.Options{})
	printer.record(ctx, recorder, report)
	if r.format == core.JSON {
		r.write(TestsEvent{Time: r.now().UTC(), Type: "tests", Report: *report})
	}
	if r.writeErr != nil {
		return r.writeErr
	}
	return testError(report)
}
