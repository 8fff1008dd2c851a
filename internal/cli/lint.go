package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/pkg/lint"
	"github.com/runlevel/runlevel/pkg/payload"
	"github.com/runlevel/runlevel/pkg/printable"
)

// asSARIF is the format in which code hosts take findings.
const asSARIF output = "sarif"

// lintConfigFile is read where lint runs, if it is there. It does not end in .yaml: in
// a plain folder it would be taken for a manifest.
const lintConfigFile = ".runlevel-lint"

// lintFlags are the flags of runlevel lint.
type lintFlags struct {
	release         releaseFlags
	component       componentFlags
	format          output
	previous        string
	previousVersion string
	config          string
	baseline        baselineFlags
	kubernetes      string
	failOn          choice
	off             []string
	suppressed      bool
}

func newLint(streams Streams) *cobra.Command {
	f := lintFlags{failOn: choice{value: string(lint.Error), allowed: []string{string(lint.Error), string(lint.Warning), string(lint.Info), "never"}}}
	command := &cobra.Command{
		Use:   "lint SOURCE",
		Short: "Say what will go wrong with a release, before there is one",
		Long: `Look at the manifests of a release with rules: what can't be read, deletes that
would not happen or take too much along, names of files that mean another order,
objects that an API server refuses. With --previous, also what an update from the
release before would do: objects left behind, tombstones that should be gone, fields
that can't be changed.

All manifests are looked at, whatever cluster they are for, unless a filter such as
--profile chooses some. "runlevel explain RULE" says what a rule means and how to mend
what it finds.

` + componentHelp + `
Only what is wrong with the component's files is reported, and what the change
causes in others. Without --previous, RELEASE is the release before.

What is known to be all right is said in a comment of the manifest,
  # runlevel:ignore RULE the reason
or in the configuration, ` + lintConfigFile + ` of the working directory or --config FILE.
What is to be mended later is accepted by a baseline: --baseline FILE --write-baseline
writes what is found today, and with --baseline FILE only what is new counts.

Exit codes: 0 when nothing is found that is as bad as --fail-on, 1 when something is,
2 when the release before can't be read, or the command is called wrongly.

` + sourceHelp,
		Example: `  # In the CI of a release
  runlevel lint ./release --previous registry.example/shop/release:1.3.0

  # In the CI of a component: is its pull request all right in that release?
  runlevel lint ./manifests --component web --into registry.example/shop/release:1.4.0

  # For a code host that shows findings beside the change
  runlevel lint ./release -o sarif > runlevel.sarif

  # Begin with a release that has findings, and see to it that there are no more
  runlevel lint ./release --baseline .runlevel-baseline --write-baseline
  runlevel lint ./release --baseline .runlevel-baseline

  # What does this rule want?
  runlevel explain stale-delete`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSource,
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams, command.Flags().Changed("config"))
		},
	}
	addReleaseFlags(command, &f.release)
	addComponentFlags(command, &f.component)
	addOutput(command, &f.format, asText, asJSON, asYAML, asSARIF, asJUnit, asGitHub)
	addBaselineFlags(command, &f.baseline)
	flags := command.Flags()
	flags.StringVar(&f.previous, "previous", "", "the SOURCE of the release before, to look at the update too")
	flags.StringVar(&f.previousVersion, "previous-version", "", "the version of the release before, when it does not say it itself")
	flags.StringVar(&f.config, "config", "", "the file that says what is known to be all right (default: "+lintConfigFile+", if it is there)")
	flags.StringVar(&f.kubernetes, "kubernetes-version", "", "the Kubernetes that the release is for, as in 1.34 (default: the newest that is known)")
	flags.StringSliceVar(&f.off, "off", nil, "rules that are not to look")
	flags.BoolVar(&f.suppressed, "show-ignored", false, "list what is ignored, too, with the reasons (in text)")
	addChoice(command, &f.failOn, "fail-on", "the mildest finding that gives exit code 1: error, warning, info or never")
	_ = command.RegisterFlagCompletionFunc("previous", completeSource)
	for _, name := range []string{"kubernetes-version", "previous-version"} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	_ = command.RegisterFlagCompletionFunc("off", cobra.FixedCompletions(ruleIDs(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

func ruleIDs() []string {
	var ids []string
	for _, rule := range lint.Rules() {
		ids = append(ids, rule.ID)
	}
	return ids
}

func (f *lintFlags) run(ctx context.Context, ref string, streams Streams, isConfigured bool) error {
	input, paths, err := f.read(ctx, ref, streams.Err, isConfigured)
	if err != nil {
		return err
	}
	result, err := lint.Run(ctx, input)
	if err != nil {
		return err
	}
	if f.baseline.write {
		return f.baseline.save(result, streams.Out)
	}
	report := newLintReport(result, paths)
	switch f.format {
	case asSARIF:
		err = report.sarif().PrettyWrite(streams.Out)
	case asJUnit:
		err = report.junit(f.fails).write(streams.Out)
	case asGitHub:
		err = report.github(streams.Out, folderOf(ref) != "")
	default:
		err = f.format.print(streams.Out, report, func(out io.Writer) error { return report.text(out, f.suppressed) })
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(result.Findings, f.fails) {
		return exitStatus(exitFailed)
	}
	return nil
}

// fails says whether a finding is as bad as --fail-on.
func (f *lintFlags) fails(finding lint.Finding) bool {
	return f.failOn.value != "never" && finding.Severity.AtLeast(lint.Severity(f.failOn.value))
}

// read reads what is to be linted.
func (f *lintFlags) read(ctx context.Context, ref string, progress io.Writer, isConfigured bool) (input lint.Input, paths lintPaths, err error) {
	if err := f.check(); err != nil {
		return input, paths, err
	}
	if input.Config, err = f.readConfig(isConfigured); err != nil {
		return input, paths, err
	}
	if input.Baseline, err = f.baseline.read(f.format); err != nil {
		return input, paths, err
	}
	if input.Config.IsAhead() {
		warn(progress, []string{"Kubernetes " + input.Config.KubernetesVersion + " is newer than any that is known here: kinds that seem unknown may be in it, and are let pass"})
	}
	f.release.keepText = true
	paths = lintPaths{source: folderOf(ref), previous: folderOf(f.previous)}
	if f.component.into != "" {
		if err = f.place(ctx, ref, progress, &input); err != nil {
			return input, paths, err
		}
		paths.release, paths.previous = folderOf(f.component.into), folderOf(cmp.Or(f.previous, f.component.into))
	} else if input.Payload, input.Problems, err = f.release.parse(ctx, ref, progress); err != nil {
		return input, paths, err
	}
	if f.previous != "" {
		if input.Previous, err = f.readPrevious(ctx, progress); err != nil {
			return input, paths, err
		}
		warn(progress, mistaken(cmp.Or(f.component.into, ref), f.previous, input.Previous, input.Payload))
	}
	warn(progress, f.release.idle(input.Payload))
	return input, paths, nil
}

// check says what of the flags can't be meant.
func (f *lintFlags) check() error {
	if f.previousVersion != "" && f.previous == "" && f.component.into == "" {
		return misuse{errors.New("--previous-version is for --previous")}
	}
	if err := checkVersion("previous-version", f.previousVersion); err != nil {
		return err
	}
	return f.component.check(&f.release)
}

// place puts a component into a release, which is the release before as well, unless
// another one is.
func (f *lintFlags) place(ctx context.Context, ref string, progress io.Writer, input *lint.Input) error {
	before := f.previousVersion
	if f.previous != "" {
		before = f.release.version
	}
	p, err := f.component.place(ctx, ref, &f.release, before, progress)
	if err != nil {
		return err
	}
	input.Payload, input.Problems, input.Previous, input.Change = p.after, p.afterProblems, p.before, p.change()
	return nil
}

// readPrevious reads the release before, which must be in order: else what is missing
// from it would seem to be new.
func (f *lintFlags) readPrevious(ctx context.Context, progress io.Writer) (*payload.Payload, error) {
	before := f.release
	before.version, before.image, before.imagesFrom, before.updatingFrom = f.previousVersion, "", "", ""
	read, problems, err := before.parse(ctx, f.previous, progress)
	if err != nil {
		return nil, err
	}
	if err := payload.Refuse(tolerated(problems, payload.Duplicate)); err != nil {
		return nil, refused("--previous "+f.previous, err)
	}
	return read, nil
}

// mistaken are warnings about two releases that are hardly those that were meant.
func mistaken(ref, previousRef string, previous, next *payload.Payload) []string {
	if previous.Hash == next.Hash {
		return []string{fmt.Sprintf("%s and %s hold the same manifests: there is nothing to update", previousRef, ref)}
	}
	from, err := version.ParseSemantic(previous.Version)
	if err != nil {
		return nil
	}
	to, err := version.ParseSemantic(next.Version)
	if err == nil && to.LessThan(from) {
		return []string{fmt.Sprintf("%s is %s, which is older than %s of %s: are they swapped?", ref, next.Version, previous.Version, previousRef)}
	}
	return nil
}

// readConfig reads the configuration, and what flags say instead of it.
func (f *lintFlags) readConfig(isConfigured bool) (lint.Config, error) {
	file := f.config
	if !isConfigured {
		file = lintConfigFile
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !isConfigured {
		err = nil
	}
	if err != nil {
		return lint.Config{}, unreadable{err}
	}
	config, err := lint.ParseConfig(file, text)
	if err != nil {
		return config, unreadable{err}
	}
	if config.Severities == nil {
		config.Severities = map[string]lint.Severity{}
	}
	for _, id := range f.off {
		if !slices.Contains(ruleIDs(), id) {
			return config, misuse{fmt.Errorf("--off: there is no rule %q: \"runlevel explain\" lists them", id)}
		}
		config.Severities[id] = lint.Off
	}
	if f.kubernetes != "" {
		if _, err := version.ParseGeneric(f.kubernetes); err != nil {
			return config, misuse{fmt.Errorf("--kubernetes-version: %q is not a version such as 1.34", f.kubernetes)}
		}
		config.KubernetesVersion = f.kubernetes
	}
	return config, nil
}

// folderOf is the folder that a release is in: findings in it can be named by paths
// that lead there. It is "" for what is no folder of manifests.
func folderOf(ref string) string {
	info, err := os.Stat(ref)
	if err != nil || !info.IsDir() {
		return ""
	}
	if _, err := os.Stat(filepath.Join(ref, "oci-layout")); err == nil {
		return ""
	}
	return ref
}

// A lintReport is a result to print.
type lintReport struct {
	lint.Result
	Counts map[lint.Severity]int `json:"counts"`
}

// lintPaths say where files of payloads are on disk: folders are "" for what is none.
type lintPaths struct {
	source, release, previous string
}

// of is the path of a file.
func (p lintPaths) of(file string, in lint.Origin) string {
	folder := p.source
	switch in {
	case lint.InConfig, lint.InBaseline:
		return file
	case lint.InPrevious:
		folder = p.previous
	case lint.InRelease:
		folder = p.release
	}
	return filepath.ToSlash(filepath.Join(folder, file))
}

// newLintReport makes paths of the files of folders.
func newLintReport(result *lint.Result, paths lintPaths) lintReport {
	report := lintReport{Result: *result, Counts: map[lint.Severity]int{lint.Error: 0, lint.Warning: 0, lint.Info: 0}}
	for _, findings := range [][]lint.Finding{result.Findings, result.Suppressed} {
		for i := range findings {
			f := &findings[i]
			f.File = paths.of(f.File, f.In)
			if f.Suppressed != nil {
				f.Suppressed.File = paths.of(f.Suppressed.File, f.Suppressed.In)
			}
		}
	}
	for _, f := range result.Findings {
		report.Counts[f.Severity]++
	}
	return report
}

// text writes a line for each finding, and what they come to.
func (r lintReport) text(out io.Writer, showSuppressed bool) error {
	var text strings.Builder
	line := func(f lint.Finding) {
		text.WriteString(f.String())
		if f.Suppressed != nil {
			fmt.Fprintf(&text, " (ignored by %s:%d: %s)", f.Suppressed.File, f.Suppressed.Line, printable.Line(f.Suppressed.Reason))
		}
		text.WriteString("\n")
	}
	for _, f := range r.Findings {
		line(f)
	}
	if showSuppressed {
		for _, f := range r.Suppressed {
			line(f)
		}
	}
	_, err := io.WriteString(out, text.String()+r.summary())
	return err
}

// summary is what the findings come to, and what could not be looked at.
func (r lintReport) summary() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s, %s", printable.Count(r.Counts[lint.Error], "error"), printable.Count(r.Counts[lint.Warning], "warning"), printable.Count(r.Counts[lint.Info], "note"))
	if len(r.Suppressed) > 0 {
		fmt.Fprintf(&text, ", %d ignored", len(r.Suppressed))
	}
	text.WriteString("\n")
	var needs []string
	skipped := map[string][]string{}
	for _, s := range r.Skipped {
		if skipped[s.Needs] == nil {
			needs = append(needs, s.Needs)
		}
		skipped[s.Needs] = append(skipped[s.Needs], s.Rule)
	}
	for _, need := range needs {
		fmt.Fprintf(&text, "not looked at without %s: %s\n", need, strings.Join(skipped[need], ", "))
	}
	return text.String()
}
