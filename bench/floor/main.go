// Command floor applies a folder of manifests with a bare loop over client-go, as the yardstick for tools that do more.
//
// It reads the files, lists the kinds of the server once, applies namespaces and definitions, then the rest, a number
// of objects at a time, and ends; with --wait, it ends once Deployments are rolled out. It has no other order, keeps no
// record, prints errors only, and never skips an object. Start with loop.go.
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
