package lint

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/runlevel/runlevel/internal/objects/ready"
	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// Check lints a release that a command is about to write, with the configuration in the working directory, and prints
// errors and warnings with the paths of a function. With isRehearsed, it rehearses the release first, with the defaults
// of the verb. It fails if there are errors.
func Check(ctx context.Context, input lint.Input, isRehearsed bool, pathOf func(string) string, out io.Writer) error {
	f := lintFlags{failOn: lint.Error, rehearsal: rehearsalFlags{
		standard: ready.Full, unknown: "refuse", patience: rehearse.DefaultPatience, nodes: 3,
	}}
	var err error
	if input.Config, err = f.readConfig(); err != nil {
		return err
	}
	var rehearsal *RehearsalInfo
	if isRehearsed {
		if rehearsal, err = f.rehearse(ctx, &input, out); err != nil {
			return err
		}
	}
	result, err := lint.Run(ctx, input)
	if err != nil {
		return err
	}
	moved := result.WithPaths(func(file string, origin lint.Origin) string {
		if origin == lint.InConfig {
			return file
		}
		return pathOf(file)
	})
	moved.Findings = slices.DeleteFunc(moved.Findings, func(f lint.Finding) bool {
		return !f.Severity.AtLeast(lint.Warning)
	})
	for _, fold := range foldFindings(moved.Findings, false) {
		fmt.Fprintln(out, fold.First)
		if len(fold.Others) > 0 {
			fmt.Fprintln(out, "  "+listPlaces(fold.Others))
		}
	}
	if rehearsal != nil {
		fmt.Fprint(out, rehearsal.text())
	}
	failed := slices.DeleteFunc(moved.Findings, func(finding lint.Finding) bool { return !f.fails(finding) })
	if len(failed) > 0 {
		return fmt.Errorf("the release has %s, so nothing was written: correct them, or accept them as \"runlevel "+
			"lint\" does, by a comment or in %s", printable.Count(len(failed), "error"), lintConfigFile)
	}
	return nil
}
