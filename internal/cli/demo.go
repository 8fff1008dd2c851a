package cli

import (
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/examples"
	"github.com/runlevel/runlevel/internal/demo"
)

func newDemo(streams Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Apply a sample release to a control plane of its own, and show it",
		Long: `Start a control plane on this machine, apply the sample release examples/hello to
it, show each object when it is applied and ready, and stop the control plane.
Nothing is left behind but the cached programs.`,
		Example:           `  runlevel demo`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			return demo.Run(command.Context(), examples.Hello(), streams.Out, streams.Err)
		},
	}
}
