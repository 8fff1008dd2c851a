package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
)

func newVersion(streams core.Streams) *cobra.Command {
	var format core.Output
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Runlevel and of its Kubernetes libraries",
		Example: `  runlevel version
  runlevel version -o json`,
		RunE: func(*cobra.Command, []string) error {
			info := core.ReadVersion()
			return format.Print(streams.Out, info, func(out io.Writer) error { return printVersion(out, info) })
		},
	}
	core.AddOutput(command, &format)
	return command
}

func printVersion(out io.Writer, v core.VersionInfo) error {
	_, err := fmt.Fprintf(out, "runlevel %s\n", v.Version)
	for _, line := range [][2]string{
		{"commit", v.Commit},
		{"go", v.Go + " " + v.Platform},
		{"kubernetes client", v.Kubernetes.Client},
		{"kubernetes sandbox", v.Kubernetes.Sandbox},
	} {
		if err == nil && line[1] != "" {
			_, err = fmt.Fprintf(out, "  %-20s %s\n", line[0], line[1])
		}
	}
	return err
}
