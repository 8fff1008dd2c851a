// Command runlevel-operator keeps a cluster at the release that its ClusterVersion asks for, and writes how far that is
// into the status. It runs in the cluster, from the Deployment in install/.
//
// It decides nothing itself: package operator does. Its flags are in flags.go; this file has the signals and the exit
// code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/startup"
	"github.com/runlevel/runlevel/pkg/operator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	startup.LimitMemory()
	ctrl.SetLogger(klog.Background())
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "runlevel-operator:", err)
		os.Exit(1)
	}
}

// start runs the operator with the cluster that flags and environment name.
func start(ctx context.Context, o operator.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "runlevel-operator"
	return operator.Run(ctx, config, o)
}
