// Package startup is the start of the programs that run in a cluster: they read flags from a file, log their values, keep the
// garbage collector within the limit of their container, serve probes, and wait for the API server.
//
// It decides nothing, and reads nothing from the cluster: that is for the controllers of the programs in cmd/.
//
// Main is the call to start from.
package startup

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/program/metricsserver"
)

// Main runs the command start of a program, and exits with code 1 if that fails. Flags of the command can also be set in
// the file of --config.
func Main(ctx context.Context, name, short string, start *cobra.Command) {
	limitMemory("/sys/fs/cgroup/memory.max")
	ctrl.SetLogger(klog.Background())
	config := start.Flags().String("config", "", "a YAML file of these flags, as NAME: VALUE; it may be missing, and the command line counts for more")
	start.Use, start.Args = "start", cobra.NoArgs
	start.PreRunE = func(command *cobra.Command, _ []string) error {
		if err := setFromFile(command, *config); err != nil {
			return err
		}
		logFlags(command.Flags())
		return nil
	}
	root := &cobra.Command{Use: name, Short: short, SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().AddGoFlag(flag.CommandLine.Lookup("kubeconfig"))
	root.AddCommand(start)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// AddServingFlags adds the flags for the addresses of probes and metrics.
func AddServingFlags(flags *pflag.FlagSet, probes *string, metrics *metricsserver.Serving) {
	flags.StringVar(probes, "listen", "", "the address of /healthz and /readyz, such as :8080")
	flags.StringVar(&metrics.Address, "metrics-listen", "", "the address of /metrics, such as :9099, which is served over TLS to those whom the API server allows to get it")
	flags.StringVar(&metrics.CertFile, "serving-cert-file", "", "the certificate for --metrics-listen; it may be missing or change at any time")
	flags.StringVar(&metrics.KeyFile, "serving-key-file", "", "the key of --serving-cert-file")
}

// ConfigOf returns the connection to the cluster from flags and environment, for the program of a command.
func ConfigOf(command *cobra.Command) (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = command.Root().Name()
	return config, nil
}
