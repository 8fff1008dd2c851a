// Command machine-controller makes, drains and deletes the machines of the cluster it runs in. It runs from the Deployment
// in manifests/.
//
// It decides nothing itself: package manager runs the controllers. Its flags are in flags.go; this file has the signals
// and the exit code.
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
	"github.com/runlevel/runlevel/pkg/machine/manager"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	startup.LimitMemory()
	ctrl.SetLogger(klog.Background())
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "machine-controller:", err)
		os.Exit(1)
	}
}

// start runs the controllers with the cluster that flags and environment name.
func start(ctx context.Context, o manager.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "machine-controller"
	return manager.Run(ctx, config, o)
}
