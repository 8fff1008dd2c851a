package lint

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
)

// An UpdateCheck finds what breaks in updates between releases, for a verb with many updates.
type UpdateCheck struct{ flags lintFlags }

// Add adds the flags of the check to a command: how releases are read, and whether updates are rehearsed.
func (c *UpdateCheck) Add(command *cobra.Command) {
	c.flags.rehearsal.add(&cobra.Command{}) // the defaults of flags that the command does not have
	c.flags.release.AddImageFlags(command)
	command.Flags().BoolVar(&c.flags.isRehearsed, "rehearse", false,
		"also try the updates on a temporary control plane: see \"runlevel rehearse\"")
}

// IsRehearsed reports whether updates are rehearsed.
func (c *UpdateCheck) IsRehearsed() bool { return c.flags.isRehearsed }

// Errors returns the errors of an update that the release before does not have.
func (c *UpdateCheck) Errors(ctx context.Context, before, after string, progress io.Writer) ([]lint.Finding, error) {
	f := c.flags
	f.previous = before
	input, _, err := f.read(ctx, after, progress)
	if err != nil {
		return nil, err
	}
	known, err := lint.Run(ctx, lint.Input{Payload: input.Previous, Config: input.Config})
	if err != nil {
		return nil, err
	}
	isKnown := map[lint.FindingKey]bool{}
	for _, finding := range known.Findings {
		isKnown[finding.Key()] = true
	}
	if f.isRehearsed {
		if _, err := f.rehearse(ctx, &input, progress); err != nil {
			return nil, err
		}
	}
	found, err := lint.Run(ctx, input)
	if err != nil {
		return nil, core.ReadError(ctx, err)
	}
	return slices.DeleteFunc(found.Findings, func(finding lint.Finding) bool {
		return finding.Severity != lint.Error || finding.Suppressed != nil || isKnown[finding.Key()]
	}), nil
}
