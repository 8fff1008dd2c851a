package install

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/operator/setup"
)

// uninstallFlags are the flags of runlevel uninstall.
type uninstallFlags struct {
	setupFlags
	operator bool
}

const uninstallHelp = `Uninstall the operator: its alerts and scrape configuration, its Deployment, and then its Service,
NetworkPolicy, admission policy, rights, service account and quota. It has ended before its rights
go.

What it has applied stays, and is neither kept in place nor updated any more. ClusterVersion and
ClusterOperators stay with their definitions, and so does the namespace runlevel-system, with the
record of the release and the operator's settings. So "runlevel install" goes on where this operator stopped, and
"runlevel apply" works with the same record.

To remove these as well:

  # The objects of the release; namespaces and definitions take along what is in them
  kinds=$(kubectl api-resources --verbs=list,delete -o name | paste -sd,)
  kubectl delete "$kinds" --all-namespaces -l runlevel.dev/release=default

  # ClusterVersion, ClusterOperators and their definitions
  kubectl delete crd clusterversions.config.openshift.io clusteroperators.config.openshift.io

  # The record of the release
  kubectl delete namespace runlevel-system

Exit codes: 0 when the operator is gone, 1 for a failure, 2 for misuse.`

// NewUninstall returns the verb uninstall.
func NewUninstall(streams core.Streams) *cobra.Command {
	var f uninstallFlags
	command := &cobra.Command{
		Use:   "uninstall --operator",
		Short: "Uninstall the operator, and leave what it has applied",
		Long:  uninstallHelp,
		Example: `  # What would be deleted?
  runlevel uninstall --operator --dry-run=server

  runlevel uninstall --operator`,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	f.add(command, "has ended")
	command.Flags().BoolVar(&f.operator, "operator", false, "uninstall the operator: nothing else can be")
	return command
}

func (f *uninstallFlags) run(ctx context.Context, streams core.Streams) error {
	if !f.operator {
		return core.Misusef("--operator is missing: only the operator is uninstalled, and what it has applied stays (\"runlevel uninstall --help\" shows how to remove that)")
	}
	if err := f.check(); err != nil {
		return err
	}
	const last = "what the operator has applied stays: \"runlevel uninstall --help\" shows how to remove it"
	return f.setupFlags.run(ctx, streams, OperatorReport{}, last, func(i *setup.Installer) error {
		return i.Uninstall(ctx, f.timeout)
	})
}
