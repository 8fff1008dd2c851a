// Package updates defines the verb updates, whose subcommands keep the folder of an update service: they add releases,
// check and draw the graph, write it as static files, and resume an update that was halted.
//
// They parse flags, call internal/updates, and print the results. They touch no cluster.
//
// Start with New.
package updates

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
)

const folderHelp = `DIR is a folder in the format of the OpenShift community's graph data (channels, blocked-edges,
raw/metadata.json, version), with releases, phases, barriers, dead-ends and halts.yaml:
see docs/updates.md.`

// New returns the verb updates.
func New(streams core.Streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "updates",
		Short: "Offer releases to many clusters, in phases",
		Long: `Keep the folder of an update service: which releases there are, which updates lead from one to
another, and which share of the clusters may take them now. Clusters pull: the operator of each
reads the graph of its channel, from static files or from a service.

` + folderHelp,
		Args: cobra.NoArgs,
		RunE: core.NeedsVerb,
	}
	command.AddCommand(newAdd(streams), newBuild(streams), newGraph(streams), newLint(streams),
		newResume(streams), newServe(streams))
	return command
}

// read reads a folder. The error lists all problems.
func read(folder string) (*graphdata.Data, error) {
	if _, err := os.ReadDir(folder); err != nil {
		return nil, core.Misuse(err)
	}
	data, err := graphdata.Read(os.DirFS(folder))
	if err == nil {
		return data, nil
	}
	problems := strings.Split(err.Error(), "\n")
	for i, problem := range problems {
		problems[i] = "  " + printable.Line(problem)
	}
	return nil, core.Misusef("%s can't be used:\n%s", folder, strings.Join(problems, "\n"))
}

// completeFolder completes DIR, and then with words that its data has.
func completeFolder(words func(*graphdata.Data) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		if words != nil {
			if data, err := graphdata.Read(os.DirFS(args[0])); err == nil {
				return words(data), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// writeFile replaces a file. An unchanged one stays as it is.
func writeFile(path string, text []byte) (isChanged bool, err error) {
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, text) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	return true, core.ReplaceFile(path, text)
}

// newResume returns the verb resume.
func newResume(streams core.Streams) *cobra.Command {
	var why string
	command := &cobra.Command{
		Use:   "resume DIR VERSION",
		Short: "Let clusters take a halted version again",
		Long: `Append a line to halts.yaml, with the reason, the time and your name, after which clusters may take
VERSION again where its phase is. Failures from before do not halt it again. Only a person
resumes; the service only halts. Static files change with the next "runlevel updates build".

Exit codes: 0; 1 if the version is not halted; 2 if the folder can't be used.

` + folderHelp,
		Example: `  runlevel updates resume ./graph-data 1.4.1 --reason "both clusters were out of disk"`,
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: completeFolder(func(data *graphdata.Data) (versions []string) {
			for version := range data.Halted() {
				versions = append(versions, version)
			}
			return versions
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := read(args[0])
			if err != nil {
				return err
			}
			halt, isHalted := data.Halted()[args[1]]
			switch {
			case why == "":
				return core.Misusef("pass --reason: why clusters may take %s again", args[1])
			case !isHalted:
				return fmt.Errorf("%s is not halted", args[1])
			}
			resumed := graphdata.Halt{To: args[1], At: metav1.NewTime(time.Now().UTC()), Resumed: why}
			if self, err := user.Current(); err == nil {
				resumed.By = self.Username
			}
			if err := graphdata.AppendHalt(args[0], resumed); err != nil {
				return err
			}
			_, err = fmt.Fprintf(streams.Out, "resumed %s, which was halted since %s: %s\n", args[1],
				halt.At.UTC().Format(time.RFC3339), printable.Line(halt.Reason))
			return err
		},
	}
	command.Flags().StringVar(&why, "reason", "", "`why` clusters may take the version again")
	return command
}
