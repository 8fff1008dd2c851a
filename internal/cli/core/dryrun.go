package core

import (
	"errors"

	"github.com/spf13/cobra"
)

// A DryRun is the value of --dry-run: "server" or "none".
type DryRun string

// The values of --dry-run.
const (
	DryRunOfServer = "server"
	NoDryRun       = "none"
)

// AddDryRun adds --dry-run.
func AddDryRun(command *cobra.Command, d *DryRun) {
	*d = NoDryRun
	flag := command.Flags().VarPF(d, "dry-run", "",
		"server: show the changes that the cluster would make, without applying them; or none")
	flag.NoOptDefVal = DryRunOfServer
	_ = command.RegisterFlagCompletionFunc("dry-run",
		cobra.FixedCompletions([]string{DryRunOfServer, NoDryRun}, cobra.ShellCompDirectiveNoFileComp))
}

// IsEnabled reports whether the apply is a dry run.
func (d DryRun) IsEnabled() bool { return d == DryRunOfServer }

// String returns the value of the flag.
func (d *DryRun) String() string { return string(*d) }

// Type returns the type in the help.
func (d *DryRun) Type() string { return "name" }

// Set sets the value of the flag.
func (d *DryRun) Set(value string) error {
	if value != DryRunOfServer && value != NoDryRun {
		return errors.New(`use --dry-run=server, which asks the cluster; "runlevel plan OLD NEW" needs none`)
	}
	*d = DryRun(value)
	return nil
}
