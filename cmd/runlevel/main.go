// Command runlevel applies release payloads to Kubernetes clusters, and runs a
// throw-away control plane to try them on.
//
// This file is wiring only: signals and the exit code. The commands are in
// package internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // lint checks the time zones of CronJobs, also where the machine has none

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/cli/core"
)

// signalGrace is the time in which further signals count as the first one: timeout(1) sends its signal twice, and a
// shell may forward a Ctrl-C that the program has already received.
const signalGrace = 300 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(signalGrace, stop) }) // a second signal ends the program at once
	code := cli.Run(ctx, os.Args[1:], core.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
