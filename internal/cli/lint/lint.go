// Package lint is the verbs that check a release for mistakes, and that explain the rules.
//
// It reads the release and the configuration, and prints findings for people, code hosts and CI servers. The rules
// are in internal/review/lint.
//
// New returns the verb lint. Start with New.
package lint

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/junit"
	"github.com/runlevel/runlevel/internal/review/lint"
)

// asSARIF is the format in which code hosts import findings.
const asSARIF core.Output = "sarif"

// lintConfigFile is read from the working directory, if it exists. It does not end in .yaml: in
// a plain folder it would be read as a manifest.
const lintConfigFile = ".runlevel-lint"

// lintFlags are the flags of runlevel lint.
type lintFlags struct {
	release         core.ReleaseFlags
	cluster         core.ClusterFlags
	component       core.ComponentFlags
	outputs         core.Outputs
	previous        string
	previousVersion string
	config          string
	baseline        baselineFlags
	kubernetes      string
	failOn          lint.Severity
	off             []string
	suppressed      bool
	all             bool

	isConfigured bool // --config is set

	rehearsal   rehearsalFlags
	isRehearsed bool // --rehearse is set
	isRehearsal bool // the verb is rehearse: only findings of the rehearsal are reported
}

const lintHelp = `Check the manifests of a release for mistakes: files that can't be read, deletes that
would not happen or would delete too much, file names that mean another order, objects
that an API server refuses. With --previous, also check the update from the previous
release: objects left behind, outdated tombstones, fields that can't be
changed.

All manifests are checked, whatever cluster they are for, unless a filter such as
--profile chooses some. "runlevel explain RULE" prints what a rule means and how to fix
its findings.

` + core.ComponentHelp + `
Only findings in the component's files are reported, and those that the change
causes in other files. Without --previous, RELEASE is the previous release.

To accept a finding for good, write a comment into the manifest,
  # runlevel:ignore RULE the reason
or an entry of the configuration, ` + lintConfigFile + ` in the working directory or --config FILE.
To fix findings later, accept them by a baseline: --baseline FILE --write-baseline writes
today's findings, and with --baseline FILE only new ones count.

Exit codes: 0 when no finding is as severe as --fail-on, 1 when one is, 2 when the
previous release can't be read, or for misuse.

` + core.SourceHelp

const lintExamples = `  # In the CI of a release
  runlevel lint ./release --previous registry.example/shop/release:1.3.0

  # In the CI of a component: is its pull request valid in that release?
  runlevel lint ./manifests --component web --into registry.example/shop/release:1.4.0

  # For a code host that shows findings beside the change
  runlevel lint ./release -o sarif > runlevel.sarif

  # Print findings, and write them for browsers and for code hosts, for example as artifacts of a pull request
  runlevel lint ./release -o html=lint.html -o sarif=lint.sarif

  # Start with a release that has findings, and allow no new ones
  runlevel lint ./release --baseline .runlevel-baseline --write-baseline
  runlevel lint ./release --baseline .runlevel-baseline

  # What does this rule check?
  runlevel explain stale-delete`

// New returns the verb lint.
func New(streams core.Streams) *cobra.Command {
	f := lintFlags{failOn: lint.Error}
	command := &cobra.Command{
		Use:               "lint SOURCE",
		Short:             "Check the manifests of a release for mistakes",
		Long:              lintHelp,
		Example:           lintExamples,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompleteSource,
		RunE: func(command *cobra.Command, args []string) error {
			f.isConfigured = command.Flags().Changed("config")
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddReleaseFlags(command, &f.release, &f.cluster)
	core.AddKubectlFlags(command, &f.release)
	core.AddClusterFlags(command, &f.cluster)
	core.AddComponentFlags(command, &f.component)
	f.addReportFlags(command)
	flags := command.Flags()
	flags.BoolVar(&f.isRehearsed, "rehearse", false,
		"also try the update on a temporary control plane, and report both: see \"runlevel rehearse\"")
	f.rehearsal.add(command)
	flags.StringVar(&f.previous, "previous", "", "the SOURCE of the previous release, to check the update as well")
	flags.StringVar(&f.previousVersion, "previous-version", "",
		"the version of the previous release, if it has no release-metadata")
	_ = command.RegisterFlagCompletionFunc("previous", core.CompleteFiles)
	return command
}

// addReportFlags adds the flags for findings and how they are reported.
func (f *lintFlags) addReportFlags(command *cobra.Command) {
	core.AddOutputs(command, &f.outputs, core.Text, core.JSON, core.YAML, asSARIF, junit.Format, asGitHub,
		core.HTML)
	addBaselineFlags(command, &f.baseline)
	flags := command.Flags()
	flags.StringVar(&f.config, "config", "",
		"the file with accepted findings and settings (default: "+lintConfigFile+", if it exists)")
	flags.StringVar(&f.kubernetes, "kubernetes-version", "",
		"the Kubernetes version of the release, as in 1.34 (default: the newest known version)")
	flags.StringSliceVar(&f.off, "off", nil, "rules to turn off")
	flags.BoolVar(&f.suppressed, "show-ignored", false,
		"also list ignored findings, with the reasons (in text and HTML)")
	flags.BoolVar(&f.all, "all", false,
		"list every finding, even if many have the same cause (in text, and for GitHub)")
	core.AddChoice(command, &f.failOn, "fail-on",
		"the lowest severity for exit code 1: error, warning, info or never", lint.Error, lint.Warning,
		lint.Info, never)
	_ = command.RegisterFlagCompletionFunc("off", core.CompleteList(ruleIDs()))
}

func ruleIDs() []string {
	var ids []string
	for _, rule := range lint.Rules() {
		ids = append(ids, rule.ID)
	}
	return ids
}

func (f *lintFlags) run(ctx context.Context, ref string, streams core.Streams) error {
	if err := f.outputs.Check(); err != nil {
		return err
	}
	input, paths, err := f.read(ctx, ref, streams.Err)
	if err != nil {
		return err
	}
	var rehearsal *RehearsalInfo
	if f.isRehearsed || f.isRehearsal {
		if rehearsal, err = f.rehearse(ctx, &input, streams.Err); err != nil {
			return err
		}
	}
	if f.isRehearsal {
		input.Config = onlyRehearsal(input.Config)
	}
	result, err := lint.Run(ctx, input)
	if err != nil {
		return err
	}
	if f.baseline.write {
		return f.baseline.save(result, streams.Out)
	}
	report := newReport(result, paths, rehearsal)
	err = f.outputs.Write(streams.Out, func(format core.Output, out io.Writer) error {
		return f.write(format, ref, report, paths.source != "", out)
	})
	if err != nil {
		return err
	}
	return core.FailIf(slices.ContainsFunc(result.Findings, f.fails))
}

// write writes a report in a format.
func (f *lintFlags) write(format core.Output, ref string, report Report, inFolder bool, out io.Writer) error {
	switch format {
	case asSARIF:
		return core.JSON.Print(out, report.sarif(), nil)
	case junit.Format:
		return report.junit(f.fails).Write(out)
	case asGitHub:
		return report.github(out, f.all, inFolder)
	case core.HTML:
		return report.page(f.title(ref), f.suppressed).WriteFile(out)
	default:
		return format.Print(out, report, func(out io.Writer) error {
			return report.text(out, f.all, f.suppressed)
		})
	}
}

// title returns the title of a page.
func (f *lintFlags) title(ref string) string {
	title := "Lint of " + ref
	if f.isRehearsal {
		title = "Rehearsal of " + ref
	}
	if f.previous != "" {
		title += ", after " + f.previous
	}
	return title
}

// never is the value of --fail-on that no finding reaches.
const never lint.Severity = "never"

// fails reports whether a finding is as severe as --fail-on.
func (f *lintFlags) fails(finding lint.Finding) bool {
	return f.failOn != never && finding.Severity.AtLeast(f.failOn)
}
