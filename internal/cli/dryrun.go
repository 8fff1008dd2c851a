package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// A dryRun is the value of --dry-run: "server" or "none".
type dryRun string

const (
	dryRunOfServer = "server"
	noDryRun       = "none"
)

func addDryRun(command *cobra.Command, d *dryRun) {
	*d = noDryRun
	flag := command.Flags().VarPF(d, "dry-run", "", "server: ask the cluster what the apply would do, and do nothing; or none")
	flag.NoOptDefVal = dryRunOfServer
	_ = command.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunOfServer, noDryRun}, cobra.ShellCompDirectiveNoFileComp))
}

func (d dryRun) isEnabled() bool { return d == dryRunOfServer }

func (d *dryRun) String() string { return string(*d) }

func (d *dryRun) Type() string { return "name" }

func (d *dryRun) Set(value string) error {
	if value != dryRunOfServer && value != noDryRun {
		return errors.New(`use --dry-run=server, which asks the cluster; "runlevel plan OLD NEW" needs none`)
	}
	*d = dryRun(value)
	return nil
}
