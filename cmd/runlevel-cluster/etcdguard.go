package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"

	guard "github.com/runlevel/runlevel/internal/etcdguard/manager"
	"github.com/runlevel/runlevel/internal/program/startup"
)

// newQuorumGuard returns the command that runs the quorum guard of etcd.
func newQuorumGuard() *cobra.Command {
	var o guard.Options
	o.Name, o.Container, o.Version = os.Getenv("POD_NAME"), startup.Container(),
		cmp.Or(os.Getenv("RELEASE_VERSION"), "0.0.1-snapshot")
	command := &cobra.Command{
		Use:   "etcd-quorum-guard",
		Short: "guard the quorum of etcd while machines are replaced",
		Long: `The guard puts the lifecycle hook EtcdQuorumOperator onto each machine of the control plane. When such a machine is
deleted, the guard waits for the learner on its replacement, promotes it, removes the member of the machine, and then the hook.

Of several replicas, one works: the one that holds the Lease "etcd-quorum-guard". It has no state, and can be killed at
any moment. It reports its status as ClusterOperator "etcd-quorum-guard", where that kind is served.

Environment: RELEASE_VERSION is the version that is reported; POD_NAME, POD_UID and POD_NAMESPACE are the pod of the guard; KUBECONFIG names a cluster other than the one it runs in.`,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := startup.ConfigOf("etcd-quorum-guard")
			if err != nil {
				return err
			}
			return guard.Run(c.Context(), config, o)
		},
	}
	flags := command.Flags()
	startup.AddServingFlags(flags, &o.Listen, &o.Metrics)
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"of the Lease, and of guard pods (default runlevel-etcd)")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 0,
		"how long the Lease outlives a leader that died (default 15s)")
	flags.StringVar(&o.MachineAPI, "machine-api", guard.OpenShift,
		"the API of the machines: "+guard.OpenShift+" or "+guard.ClusterAPI)
	flags.StringVar(&o.Machines, "machines", "",
		"labels that select the machines of the control plane (default those that the API has for it)")
	flags.IntVar(&o.Voters, "voters", 3, "how many voting members etcd is to have")
	flags.StringSliceVar(&o.Endpoints, "etcd-endpoints", nil,
		"where etcd is, such as https://10.0.0.1:2379 (default port 2379 of the nodes of the control plane)")
	flags.StringVar(&o.Etcd.CAFile, "etcd-ca-file", "", "the authority of the members' certificates")
	flags.StringVar(&o.Etcd.CertFile, "etcd-cert-file", "",
		"the certificate of a client of etcd; it is read again for each connection")
	flags.StringVar(&o.Etcd.KeyFile, "etcd-key-file", "", "the key of --etcd-cert-file")
	flags.DurationVar(&o.Etcd.Patience, "unhealthy-after", 0,
		"for how long a member may not answer until it counts as unhealthy (default 30s)")
	flags.StringVar(&o.GuardPodsNamespace, "guard-pods-namespace", "",
		"where the pods are that keep a drain from nodes with members (default --namespace)")
	flags.StringVar(&o.GuardPods, "guard-pods", "", "labels that select those pods (default app=guard)")
	return command
}
