// Command runlevel-operator keeps a cluster at the release that its ClusterVersion asks for, and writes how far that is
// into the status. It runs in the cluster, from the Deployment in install/.
//
// It decides nothing itself: package operator does. Its flags are in flags.go; this file has the signals, and package
// startup has what such programs have in common.
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
	startup.Main(ctx, "runlevel-operator", "keeps a cluster at the release that its ClusterVersion asks for", newStart())
}
