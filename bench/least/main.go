// Command least applies a folder of manifests with the least that was found to do it, without
// client-go: it shows how much lower than the floor one can get.
//
// It reads the files, asks once which kinds the server has, applies namespaces and
// definitions, then the rest, so many at a time, and ends. There is no order beyond
// that, no waiting, no record, nothing is told, and nothing is ever left out. Its flags
// are ways to do with less still; its defaults are what was measured to be the least.
// Start with loop.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/runlevel/runlevel/bench/internal/api"
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
	var l loop
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the kubeconfig file")
	connections := flag.Int("connections", 1, "how many connections to spread requests over")
	flag.IntVar(&l.atOnce, "at-once", 48, "how many objects to send at a time")
	flag.BoolVar(&l.metadataOnly, "metadata-only", true, "ask for the metadata alone in answers")
	flag.BoolVar(&l.create, "create", false, "create objects, without server-side apply: once only, and without fields that are ours")
	flag.BoolVar(&l.cbor, "cbor", false, "send CBOR, which the server must have a feature gate for")
	flag.Parse()
	if flag.NArg() != 1 || l.atOnce < 1 {
		return errors.New("usage: least [flags] DIR, with at least one at a time")
	}
	var err error
	if l.server, err = api.Open(*kubeconfig, *connections); err != nil {
		return err
	}
	return l.run(ctx, flag.Arg(0))
}
