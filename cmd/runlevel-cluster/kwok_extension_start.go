package main

import (
	"flag"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/runlevel/runlevel/internal/program/startup"
	"github.com/runlevel/runlevel/pkg/extensionserver"
)

// newKwokExtension returns the command that runs a runtime extension which updates simulated machines in place. It is
// for tests, demonstrations and rehearsals of rollouts, so it can be slow and can fail.
func newKwokExtension() *cobra.Command {
	var serving extensionserver.ServingFlags
	command := &cobra.Command{
		Use:   "kwok-extension --cert-file FILE --key-file FILE",
		Short: "update simulated machines in place, as a runtime extension of Cluster API",
		Long: `Run a runtime extension of Cluster API that updates simulated machines (KwokMachines) in
place: the version, labels and operating system image of their Nodes. Register it with an ExtensionConfig, whose
settings "delay" and "fail" define how long an update takes, and with which message it fails.`,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := startup.ConfigOf("kwok-extension")
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			e := &extension{nodes: client.CoreV1().Nodes(), now: time.Now}
			server := &extensionserver.ExtensionServer{
				CanUpdateMachineSet: canUpdateMachineSet, CanUpdateMachine: canUpdateMachine,
				UpdateMachine: e.updateMachine,
			}
			return server.Serve(c.Context(), serving)
		},
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	serving.AddFlags(flags)
	command.Flags().AddGoFlagSet(flags)
	return command
}
