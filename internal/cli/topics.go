package cli

import "github.com/spf13/cobra"

// exitCodes returns the help topic about exit codes.
func exitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes of all verbs mean",
		Long: `Every verb exits with one of these codes:

  0  all is well: it is done, nothing blocks, nothing is found
  1  something is not: an apply or a test of a release has failed, a check blocks, lint has findings, a release is not
     complete, the cluster can't be reached; with --exit-code, plan and diff have found a difference
  2  misuse: wrong flags or arguments, or input that can't be read; with --exit-code of plan and
     diff, anything that goes wrong

When an apply is interrupted by Ctrl-C or SIGTERM, it stops cleanly and exits with 1; the second
signal ends it at once. "runlevel sandbox exec" exits with the code of the program that it runs.

The help of each verb has its own cases.`,
	}
}
