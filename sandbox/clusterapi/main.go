// Command clusterapi is two parts of Cluster API itself, for the tests of Runlevel's machine controller beside it:
// "core" runs the controller of Clusters, and "extension" serves the handlers for updates in place of Cluster API's
// test extension.
//
// It has no other controller of Cluster API: those of Machines, MachineSets and so on are the machine controller's. It
// lives in a module of its own, so that Cluster API is no dependency of Runlevel; the tests of
// internal/machines/besidecore build and start it. Nothing else should need to run it. Start with core.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(klog.NewContext(context.Background(), klog.Background()), os.Interrupt,
		syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "clusterapi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "core":
		return runCore(ctx)
	case len(arguments) > 0 && arguments[0] == "extension":
		return runExtension(ctx, arguments[1:])
	}
	return errors.New("call me with core or extension")
}
