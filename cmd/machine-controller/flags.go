package main

import (
	"cmp"
	"flag"
	"os"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/startup"
	"github.com/runlevel/runlevel/pkg/machine/manager"
)

// newCommand returns the command line of the controller.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "machine-controller", Short: "makes, drains and deletes the machines of a cluster",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
	root.AddCommand(newStart())
	return root
}

func newStart() *cobra.Command {
	var config string
	var dialects []string
	var o manager.Options
	o.Name, o.Version = os.Getenv("POD_NAME"), cmp.Or(os.Getenv("RELEASE_VERSION"), "0.0.1-snapshot")
	command := &cobra.Command{
		Use: "start", Args: cobra.NoArgs, Short: "run the controllers of Machines, MachineSets and MachineHealthChecks",
		Long: `Start makes the infrastructure of each Machine (machine.openshift.io/v1beta1), links it with its node, and
deletes it phase by phase: it waits for hooks, drains the node, and deletes infrastructure and Node. With --dialects it
does so for Machines of Cluster API (cluster.x-k8s.io/v1beta2).

Of several replicas, one works: the one that holds the Lease "machine-controller". It reports how it stands as ClusterOperator
"machine-controller", where that kind is served.

Environment: RELEASE_VERSION is the version that is reported; POD_NAME and POD_NAMESPACE say who and where the controller
is; KUBECONFIG names a cluster other than the one it runs in.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := startup.SetFromFile(c, config); err != nil {
				return err
			}
			startup.LogFlags(c.Flags())
			for _, dialect := range dialects {
				o.Dialects = append(o.Dialects, manager.MachineDialect(dialect))
			}
			return start(c.Context(), o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config, "config", "", "a YAML file of these flags, as NAME: VALUE; it may be missing, and the command line counts for more")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "of the Lease (default runlevel-machines)")
	flags.StringVar(&o.Listen, "listen", "", "the address of /healthz and /readyz, such as :8080")
	flags.StringVar(&o.Metrics.Address, "metrics-listen", "", "the address of /metrics, such as :9099, which is served over TLS to those whom the API server allows to get it")
	flags.StringVar(&o.Metrics.CertFile, "serving-cert-file", "", "the certificate for --metrics-listen; it may be missing or change at any time")
	flags.StringVar(&o.Metrics.KeyFile, "serving-key-file", "", "the key of --serving-cert-file")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 0, "how long the Lease outlives a leader that died (default 15s)")
	flags.StringSliceVar(&dialects, "dialects", nil, "the APIs whose Machines are worked on: openshift (the default), cluster-api, or both with a comma between them")
	flags.IntVar(&o.Concurrency, "concurrency", 0, "how many Machines are worked on at once (default 20)")
	return command
}
