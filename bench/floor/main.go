// Command floor applies a folder of manifests with a bare loop over client-go, as the
// yardstick for everything that does more.
//
// It reads the files, asks once which kinds the server has, applies namespaces and
// definitions, then the rest, so many at a time, and ends; with --wait, once Deployments
// are rolled out. There is no order beyond that, no record, nothing is told but what was refused,
// and nothing is ever left out. Start with loop.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig file")
	atOnce := flag.Int("at-once", 48, "how many objects to send at a time")
	wait := flag.Bool("wait", false, "wait until Deployments are rolled out")
	flag.Parse()
	if flag.NArg() != 1 || *atOnce < 1 {
		return errors.New("usage: floor [flags] DIR, with at least one at a time")
	}
	l, err := open(*kubeconfig, *atOnce)
	if err != nil {
		return err
	}
	applied, err := l.run(ctx, flag.Arg(0))
	if err != nil || !*wait {
		return err
	}
	return l.wait(ctx, applied)
}
