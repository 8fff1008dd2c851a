// Command runlevel-cluster is what runs in a cluster: the operator, the machine controller, the quorum guard of etcd,
// and an extension for simulated machines. Each is a verb, which a Deployment in install/ or manifests/ starts.
//
// It decides nothing itself. Each verb has its flags in a file of its own; main has the signals, and package startup
// what the verbs have in common.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/runlevel/runlevel/internal/program/startup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	startup.Main(ctx, "runlevel-cluster", newOperator(), newMachineController(), newQuorumGuard(), newKwokExtension())
}
