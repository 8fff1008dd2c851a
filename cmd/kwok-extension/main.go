// Command kwok-extension is a runtime extension that updates simulated machines (KwokMachines) in place: their kubelet version,
// their operating system image and labels of their Nodes. It is for tests, demonstrations and rehearsals of rollouts, so it can
// be slow and can fail.
//
// What it covers, and how a Node shows it, is in extension.go, its help in usage.go; this file has flags, the
// connection and the signals.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/runlevel/runlevel/pkg/extensionserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("kwok-extension", flag.ExitOnError)
	var serving extensionserver.ServingFlags
	serving.AddFlags(flags)
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the cluster whose Nodes are changed (default: the one it runs in)")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // which exits
	if err := run(ctx, serving, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "kwok-extension:", err)
		os.Exit(1)
	}
}

// run answers hooks until ctx ends.
func run(ctx context.Context, serving extensionserver.ServingFlags, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "kwok-extension"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	e := &extension{nodes: client.CoreV1().Nodes(), now: time.Now}
	server := &extensionserver.ExtensionServer{
		CanUpdateMachineSet: canUpdateMachineSet, CanUpdateMachine: canUpdateMachine, UpdateMachine: e.updateMachine,
	}
	return server.Serve(ctx, serving)
}
