// Command machine-controller makes, drains and deletes the machines of the cluster it runs in. It runs from the Deployment
// in manifests/.
//
// It decides nothing itself: package manager runs the controllers. Its flags are in flags.go; this file has the signals,
// and package startup has what such programs have in common.
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
	startup.Main(ctx, "machine-controller", "makes, drains and deletes the machines of a cluster", newStart())
}
