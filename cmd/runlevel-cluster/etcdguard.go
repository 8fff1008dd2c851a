package main

import (
	"github.com/spf13/cobra"

	guard "github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/program/startup"
)

// newQuorumGuard returns the command that runs the quorum guard of etcd.
func newQuorumGuard() *cobra.Command {
	var o guard.Options
	command := &cobra.Command{
		Use:   "etcd-quorum-guard",
		Short: "guard the quorum of etcd while machines are replaced",
		Long: `The guard adds the lifecycle hook EtcdQuorumOperator to each machine of the control
plane. When such a machine is deleted, the guard waits for the learner on its replacement, promotes it, removes the
member of the deleted machine, and then removes the hook.

If there are several replicas, the one that holds the Lease "etcd-quorum-guard" works. It has no state, and can be
killed at any moment. It reports its status in the ClusterOperator "etcd-quorum-guard", if the cluster serves that
kind.

` + programEnvironment,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := startup.ConfigOf("etcd-quorum-guard")
			if err != nil {
				return err
			}
			return guard.Run(c.Context(), config, o)
		},
	}
	flags := command.Flags()
	addProgramFlags(flags, &o.Options, guard.DefaultNamespace)
	flags.StringVar(&o.MachineAPI, "machine-api", guard.OpenShift,
		"the API of the machines: "+guard.OpenShift+" or "+guard.ClusterAPI)
	flags.StringVar(&o.Machines, "machines", "",
		"the labels of the machines of the control plane (default: those of the API)")
	flags.IntVar(&o.Voters, "voters", 3, "how many voting members etcd should have")
	flags.StringSliceVar(&o.Endpoints, "etcd-endpoints", nil,
		"the endpoints of etcd, such as https://10.0.0.1:2379 (default port 2379 of the nodes of the control plane)")
	flags.StringVar(&o.Etcd.CAFile, "etcd-ca-file", "", "the certificate authority of the members")
	flags.StringVar(&o.Etcd.CertFile, "etcd-cert-file", "",
		"the certificate of a client of etcd; the guard reads it again for each connection")
	flags.StringVar(&o.Etcd.KeyFile, "etcd-key-file", "", "the key of --etcd-cert-file")
	flags.DurationVar(&o.Etcd.Patience, "unhealthy-after", 0,
		"how long a member may not answer before it counts as unhealthy (default 30s)")
	flags.StringVar(&o.GuardPodsNamespace, "guard-pods-namespace", "",
		"the namespace of the guard pods, which block the drain of a node that has a member (default --namespace)")
	flags.StringVar(&o.GuardPods, "guard-pods", "", "the labels of the guard pods (default app=guard)")
	return command
}
