// Command runlevel-cluster is what runs in a cluster: the operator, the machine controller, the quorum guard of etcd,
// and an extension for simulated machines. Each is a verb, which a Deployment in install/ or manifests/ starts.
//
// It decides nothing itself. Each verb has its flags in a file of its own; main has the signals, and package startup
// the common parts of the verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // windows of automatic updates name time zones, which the image lacks

	"github.com/spf13/pflag"

	"github.com/runlevel/runlevel/internal/program/leader"
	"github.com/runlevel/runlevel/internal/program/startup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	startup.Main(ctx, "runlevel-cluster", newOperator(), newMachineController(), newQuorumGuard(), newKwokExtension())
}

// programEnvironment describes the environment of a program with leader election, for its help.
const programEnvironment = `Environment: RELEASE_VERSION is the reported version; POD_NAME, POD_UID and
POD_NAMESPACE identify the pod; KUBECONFIG names another cluster than the one that the program runs in.`

// addProgramFlags reads the environment of a program with leader election, and adds its flags.
func addProgramFlags(flags *pflag.FlagSet, o *leader.Options, defaultNamespace string) {
	o.Name, o.Container = os.Getenv("POD_NAME"), startup.Container()
	o.Version = startup.Version()
	startup.AddServingFlags(flags, &o.Listen, &o.Metrics)
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"),
		"the namespace of the Lease (default "+defaultNamespace+")")
	flags.DurationVar(&o.LeaseDuration, "lease-duration", 0,
		"how long the Lease outlives a leader that died (default 15s)")
}
