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

	"github.com/runlevel/runlevel/internal/cli"
)

// oneWish is how long signals mean the same as the first: timeout(1) sends its own twice,
// and a shell may pass on a Ctrl-C that we have got already.
const oneWish = 300 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneWish, stop) }) // a second signal ends the program at once
	code := cli.Run(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
