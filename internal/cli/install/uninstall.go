package install

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/operator/setup"
)

// uninstallFlags are the flags of runlevel uninstall.
type uninstallFlags struct {
	setupFlags
	releaseUninstallFlags
	name     string
	operator bool
}

const uninstallHelp = `Uninstall a release: delete the objects that it has applied, and then its record. An object
counts if it has the label of the release and Runlevel has applied it: controllers copy labels.

Objects are deleted before the objects they need, in stages: custom resources while their
controllers still run; webhooks before their Services; workloads before their configuration and
rights; definitions and namespaces last. A stage begins when the objects of the one before, and
the pods of its workloads, no longer exist. Objects whose delete does not finish are listed, with their
finalizers. To continue an uninstall that was killed or has timed out, run it again.

Never deleted:
- a namespace, or a definition, with objects that the release does not have
- an object that another manager or release has taken over
- PersistentVolumeClaims, PersistentVolumes, and objects with the annotation
  runlevel.dev/keep: "true", unless --delete-data names them
- an object whose delete would also delete a kept object

Each of these is listed with the reason. It keeps its labels, and an annotation has the time of the
uninstall: a later apply of the release uses it again.

On a terminal, the command lists the objects and asks for confirmation; elsewhere, --yes is required.
The uninstall holds the lock of the release, and refuses to begin while an operator or
"apply --watch" keeps the release in place. No lifecycle hook of a Deployment is run.

With --operator, the operator is uninstalled instead: its alerts and scrape configuration, its
Deployment, and then its Service, NetworkPolicy, admission policy, rights, service account and
quota. Its rights are deleted only after it has ended. This never asks for confirmation.
Objects of its release stay, and are no longer kept in place or updated; "runlevel uninstall
default" deletes them. ClusterVersion and ClusterOperators stay with their definitions, and
so does the namespace runlevel-system, with the record of the release and the operator's settings.
So "runlevel install" continues where this operator stopped, and "runlevel apply" works with the
same record.

Exit codes: 0 when the release, except for kept objects, or the operator is deleted; 1 for a failure,
or when the deletes do not finish in time; 2 for misuse.`

const uninstallExamples = `  # What would be deleted, and what would be kept?
  runlevel uninstall shop --dry-run=server

  runlevel uninstall shop

  # In a script; the database stays
  runlevel uninstall shop --yes --keep statefulset/db --keep service/db

  # With all of its volumes
  runlevel uninstall shop --delete-data 'persistentvolumeclaim/*'

  # The operator, and then its release
  runlevel uninstall --operator && runlevel uninstall default`

// NewUninstall returns the verb uninstall.
func NewUninstall(streams core.Streams) *cobra.Command {
	var f uninstallFlags
	command := &cobra.Command{
		Use:     "uninstall",
		Short:   "Uninstall a release, or the operator",
		Long:    uninstallHelp,
		Example: uninstallExamples,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command, streams)
		},
	}
	core.AddClusterFlags(command, &f.cluster)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release")
	core.AddOutput(command, &f.format, core.Text, wide, core.JSON, core.YAML)
	core.AddDryRun(command, &f.dryRun)
	core.AddNotify(command, &f.notify)
	command.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute,
		"how long to wait until all objects are deleted, or the operator has ended (default with --operator: 5m)")
	command.Flags().BoolVar(&f.operator, "operator", false, "uninstall the operator, and keep its release")
	f.releaseUninstallFlags.add(command)
	return command
}

func (f *uninstallFlags) run(command *cobra.Command, streams core.Streams) error {
	switch {
	case f.operator && f.name != "":
		return core.Misusef("--operator and the name of a release cannot be used together: uninstall the release " +
			"after the operator")
	case f.operator:
		return f.runOperator(command, streams)
	case f.name == "":
		return core.Misusef("name the release to uninstall, as in \"runlevel uninstall shop\" " +
			"(\"runlevel list\" lists all releases); or --operator")
	}
	if err := f.check(); err != nil {
		return err
	}
	return f.runRelease(command.Context(), streams)
}

// operatorTimeout is the default of --timeout with --operator.
const operatorTimeout = 5 * time.Minute

func (f *uninstallFlags) runOperator(command *cobra.Command, streams core.Streams) error {
	for _, name := range onlyReleaseFlags {
		if command.Flags().Changed(name) {
			return core.Misusef("--%s has no effect with --operator", name)
		}
	}
	if !command.Flags().Changed("timeout") {
		f.timeout = operatorTimeout
	}
	if err := f.check(); err != nil {
		return err
	}
	const last = "the objects of the release stay: \"runlevel uninstall default\" deletes them"
	return f.setupFlags.run(command.Context(), streams, OperatorReport{}, last, func(i *setup.Installer) error {
		return i.Uninstall(command.Context(), f.timeout)
	})
}

// runRelease uninstalls a release, or previews its uninstall.
func (f *uninstallFlags) runRelease(ctx context.Context, streams core.Streams) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	u := &releaseUninstall{cluster: c, options: options, flags: f, streams: streams}
	return u.run(ctx)
}
