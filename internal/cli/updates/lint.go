package updates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cli/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

const lintHelp = `Find content that can be used, but is probably not meant: updates to older versions, by which clusters
could go in circles; versions that no update of a channel leads to, or that clusters can't leave;
versions that no release has, releases that no channel has, and phases without effect.

With --to, lint the updates to a version, as "runlevel lint --previous" does. With --rehearse, try
them as well. Errors that the release before has already are left out. With --write-risks, the
others become risks in blocked-edges: clusters are warned, and take no such update by themselves.
Updates with a risk are not checked again.

Exit codes: 0; 1 for an update to an older version, or one that breaks; 2 if the folder or a release
can't be used.

` + folderHelp

// A linting is one run of the verb lint.
type linting struct {
	versions []string // flags
	writes   bool
	format   core.Output
	check    lint.UpdateCheck

	folder string
	report LintReport
}

// newLint returns the verb lint.
func newLint(streams core.Streams) *cobra.Command {
	var l linting
	command := &cobra.Command{
		Use:   "lint DIR",
		Short: "Find updates that lead back or nowhere, or that break, and files without effect",
		Long:  lintHelp,
		Example: `  runlevel updates lint ./graph-data

  # Before a version is offered: rehearse the updates to it, and warn clusters of those that break
  runlevel updates lint ./graph-data --to 1.4.1 --rehearse --write-risks`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFolder(nil),
		RunE: func(command *cobra.Command, args []string) error {
			return l.run(command.Context(), args[0], streams)
		},
	}
	core.AddOutput(command, &l.format)
	l.check.Add(command)
	flags := command.Flags()
	flags.StringSliceVar(&l.versions, "to", nil, "check the updates to these `versions`")
	flags.BoolVar(&l.writes, "write-risks", false, "write updates that break into blocked-edges, as risks")
	return command
}

func (l *linting) run(ctx context.Context, folder string, streams core.Streams) error {
	data, err := read(folder)
	switch {
	case err != nil:
		return err
	case len(l.versions) == 0 && (l.writes || l.check.IsRehearsed()):
		return core.Misusef("--rehearse and --write-risks need --to, the versions whose updates are checked")
	}
	l.folder, l.report.Findings = folder, data.Lint()
	for _, version := range l.versions {
		isKnown := func(r graphdata.Release) bool { return r.Version == version }
		if !slices.ContainsFunc(data.Releases, isKnown) {
			return core.Misusef("--to: no release has version %s", version)
		}
		if err := l.try(ctx, data.UpdatesTo(version), streams.Err); err != nil {
			return err
		}
	}
	isError := func(f graphdata.Finding) bool { return f.IsError }
	err = l.format.PrintWhole(streams.Out, l.report, l.report.print)
	return cmp.Or(err, core.FailIf(slices.ContainsFunc(l.report.Findings, isError)))
}

// A breakage is a rule of lint by which updates to a version break.
type breakage struct {
	rule, version, message string
	from                   []string // expressions
}

// try adds the errors of updates to a version.
func (l *linting) try(ctx context.Context, updates []graphdata.Update, progress io.Writer) error {
	breakages := map[string]*breakage{} // by rules
	for i, update := range updates {
		fmt.Fprintf(progress, "%d of %d: from %s to %s\n", i+1, len(updates), update.FromName, update.ToName)
		found, err := l.check.Errors(ctx, update.From.Image, update.To.Image, progress)
		if err != nil {
			return fmt.Errorf("from %s to %s: %w", update.FromName, update.ToName, err)
		}
		for _, f := range found {
			message := printable.Line(strings.TrimPrefix(f.Object+": "+f.Message, ": "))
			l.report.Findings = append(l.report.Findings, graphdata.Finding{
				File: update.To.File, IsError: true, Message: fmt.Sprintf("the update from %s to %s: %s (%s)",
					update.FromName, update.ToName, message, f.Rule),
			})
			known := breakages[f.Rule]
			if known == nil {
				known = &breakage{rule: f.Rule, version: update.To.Version, message: message}
				breakages[f.Rule] = known
			}
			if from := regexp.QuoteMeta(update.FromName); !slices.Contains(known.from, from) {
				known.from = append(known.from, from)
			}
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(breakages)) {
		if err := l.write(breakages[rule]); err != nil {
			return err
		}
	}
	return nil
}

// rulePages are the pages of the rules of lint.
const rulePages = "https://runlevel.github.io/runlevel/latest/rules/"

// write writes a breakage into a new file, as a risk for all clusters.
func (l *linting) write(b *breakage) error {
	if !l.writes {
		return nil
	}
	var name strings.Builder
	for word := range strings.SplitSeq(b.rule, "-") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	text, err := yaml.Marshal(graphdata.BlockedEdge{
		To: b.version, From: "^(" + strings.Join(b.from, "|") + ")$",
		Risk: graphdata.Risk{
			Name: name.String(), URL: rulePages + b.rule + ".html", Message: b.message,
			MatchingRules: []graphdata.MatchingRule{{Type: "Always"}},
		},
	})
	if err != nil {
		return err
	}
	file := filepath.Join("blocked-edges", b.version+"-"+b.rule+".yaml")
	for number := 2; ; number++ {
		if _, err := os.Stat(filepath.Join(l.folder, file)); errors.Is(err, os.ErrNotExist) {
			break
		}
		file = filepath.Join("blocked-edges", fmt.Sprintf("%s-%s-%d.yaml", b.version, b.rule, number))
	}
	l.report.Written = append(l.report.Written, file)
	_, err = writeFile(filepath.Join(l.folder, file), text)
	return err
}

// LintReport is the output of runlevel updates lint.
type LintReport struct {
	Findings []graphdata.Finding `json:"findings"`
	Written  []string            `json:"written,omitempty"` // risks
}

func (r LintReport) print(out io.Writer) error {
	lines := []string{}
	for _, finding := range r.Findings {
		severity := "warning"
		if finding.IsError {
			severity = "error"
		}
		lines = append(lines, printable.Line(fmt.Sprintf("%s: %s: %s", severity, finding.File, finding.Message)))
	}
	for _, file := range r.Written {
		lines = append(lines, "wrote "+file)
	}
	return core.PrintLines(out, append(lines, printable.Count(len(r.Findings), "finding")))
}
