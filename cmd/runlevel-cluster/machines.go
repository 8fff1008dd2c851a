package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/startup"
)

// newMachineController returns the command that runs the machine controller.
func newMachineController() *cobra.Command {
	var dialects []string
	var o manager.Options
	o.Name, o.Container, o.Version = os.Getenv("POD_NAME"), startup.Container(),
		cmp.Or(os.Getenv("RELEASE_VERSION"), "0.0.1-snapshot")
	command := &cobra.Command{
		Use:   "machine-controller",
		Short: "run the controllers of Machines, MachineSets and MachineHealthChecks",
		Long: `The machine controller makes the infrastructure of each Machine (machine.openshift.io/v1beta1), links it with its node, and
deletes it phase by phase: it waits for hooks, drains the node, and deletes infrastructure and Node. With --dialects it
does so for Machines of Cluster API (cluster.x-k8s.io/v1beta2).

Of several replicas, one works: the one that holds the Lease "machine-controller". It reports its status as ClusterOperator
"machine-controller", where that kind is served.

Environment: RELEASE_VERSION is the version that is reported; POD_NAME, POD_UID and POD_NAMESPACE are the pod of the
controller; KUBECONFIG names a cluster other than the one it runs in.`,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, dialect := range dialects {
				o.Dialects = append(o.Dialects, manager.Dialect(dialect))
			}
			config, err := startup.ConfigOf("machine-controller")
			if err != nil {
				return err
			}
			return manager.Run(c.Context(), config, o)
		},
	}
	flags := command.Flags()
	startup.AddServingFlags(flags, &o.Listen, &o.Metrics)
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "of the Lease (default runlevel-machines)")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 0,
		"how long the Lease outlives a leader that died (default 15s)")
	flags.StringSliceVar(&dialects, "dialects", nil,
		"the APIs whose Machines are reconciled: openshift (the default), cluster-api, or both, separated by a "+
			"comma; "+
			"cluster-api-control-planes is for RunlevelControlPlanes beside Cluster API's own controllers")
	flags.StringSliceVar(&o.Namespaces, "namespaces", nil,
		"whose Machines are worked on, with commas between them (default all)")
	flags.IntVar(&o.Concurrency, "concurrency", 0, "how many Machines are worked on at once (default 20)")
	return command
}
