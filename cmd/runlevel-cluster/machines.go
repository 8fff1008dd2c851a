package main

import (
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/machines/manager"
	"github.com/runlevel/runlevel/internal/program/startup"
)

// newMachineController returns the command that runs the machine controller.
func newMachineController() *cobra.Command {
	var dialects []string
	var o manager.Options
	command := &cobra.Command{
		Use:   "machine-controller",
		Short: "run the controllers of Machines, MachineSets and MachineHealthChecks",
		Long: `The machine controller creates the infrastructure of each Machine
(machine.openshift.io/v1beta1), links the Machine to its Node, and deletes it phase by phase: it waits for hooks,
drains the Node, and deletes infrastructure and Node. With --dialects it does the same for Machines of Cluster API
(cluster.x-k8s.io/v1beta2).

If there are several replicas, the one that holds the Lease "machine-controller" works. It reports its status in the
ClusterOperator "machine-controller", if the cluster serves that kind.

` + programEnvironment,
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
	addProgramFlags(flags, &o.Options, manager.DefaultNamespace)
	flags.StringSliceVar(&dialects, "dialects", nil,
		"the APIs whose Machines are reconciled: openshift (the default), cluster-api, or both, separated by a "+
			"comma; cluster-api-control-planes is for RunlevelControlPlanes beside Cluster API's own controllers")
	flags.StringSliceVar(&o.Namespaces, "namespaces", nil,
		"the namespaces whose Machines are reconciled, separated by commas (default all)")
	flags.IntVar(&o.Concurrency, "concurrency", 0, "how many Machines are reconciled at once (default 20)")
	return command
}
