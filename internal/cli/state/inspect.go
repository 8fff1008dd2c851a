package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

const inspectHelp = `Write files into the folder DIR that help a maintainer to find out why a release makes no progress:
for each release its status (runlevel status), its record with the hashes of the applied objects, its
lock, a list of its objects, and the objects that are not ready or differ from the release; the
ClusterVersion and the ClusterOperators; the operator's Deployment, pods and logs; and the events of
all these objects. The command also works without an operator. It creates DIR, or DIR must be empty.

Values of Secrets are not written, and of ConfigMaps only those of records. Passwords in URLs are
masked. Environment variables and custom resources are written unchanged: read the files before you
send them.

Objects and logs that can't be read, such as those of a lost node, are reported, and the other files
are written.

Exit codes: 0 if everything could be read; 1 if not; 2 for misuse, such as a DIR that is not empty.`

// NewInspect returns the verb inspect.
func NewInspect(streams core.Streams) *cobra.Command {
	var f displayFlags
	command := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Write files for a maintainer who helps, without values of Secrets",
		Long:  inspectHelp,
		Example: `  runlevel inspect ./report
  tar czf report.tar.gz report      # to send it

  # The same as a page in one file
  runlevel inspect ./report -o html > report.html

  # What could not be read?
  runlevel inspect ./report -o json | jq -r '.unread[]?'

  # An operator in another namespace
  runlevel inspect ./report --record-namespace platform`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompletePaths(1, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(command *cobra.Command, args []string) error {
			return f.inspect(command.Context(), args[0], streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML, core.HTML)
	return command
}

func (f *displayFlags) inspect(ctx context.Context, folder string, streams core.Streams) error {
	if err := checkEmpty(folder); err != nil {
		return core.Misuse(err)
	}
	reader, err := connect(ctx, &f.cluster)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create the folder: %w", err)
	}
	report, err := reader.Inspect(ctx, state.Inspection{
		Folder: folder, Version: core.ReadVersion(), Progress: streams.Err,
		Text: func(s *state.Status) []string { return statusText{s}.lines(statusWidth, statusLevels) },
	})
	if err != nil {
		return fmt.Errorf("%s is not complete: %w", folder, err)
	}
	if err := f.format.Print(streams.Out, report, func(out io.Writer) error {
		if f.format != core.HTML {
			return printInspection(out, report)
		}
		page, err := inspectionPage(report)
		if err != nil {
			return err
		}
		return page.WriteFile(out)
	}); err != nil {
		return err
	}
	return core.FailIf(len(report.Unreadable) > 0)
}

// checkEmpty returns an error unless the folder is empty or does not exist.
func checkEmpty(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty: name a new folder", folder)
	}
	return nil
}

// printInspection prints the report as text.
func printInspection(out io.Writer, r *state.InspectReport) error {
	fmt.Fprintf(out, "wrote %s to %s:\n", printable.Count(len(r.Files), "file"), printable.Line(r.Folder))
	var rows []string
	for _, file := range r.Files {
		rows = append(rows, "  "+printable.Line(file.Path)+"\t"+printable.Line(file.Contents))
	}
	lines := core.Align(rows)
	if len(r.Unreadable) > 0 {
		lines = append(lines, "could not be read:")
	}
	for _, what := range r.Unreadable {
		lines = append(lines, "  "+what)
	}
	return core.PrintLines(out,
		append(lines, withoutSecrets))
}

// withoutSecrets is printed below the files of an inspection.
const withoutSecrets = "no values of Secrets are in them; environment variables and custom resources are: look at " +
	"the files before you send them"
