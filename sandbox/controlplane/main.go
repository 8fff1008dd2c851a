// Command controlplane is a whole Kubernetes control plane in one program:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok. It
// acts as the component whose name it is called by, through links to it.
//
// It lives in a module of its own, so that the versions these five need of
// each other never meet the versions Runlevel itself is built with. Package
// internal/sandbox builds it when no ready-made programs are at hand; start
// there. Nothing else should need to run it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
)

// dieWithStdin names the environment variable that ties a component's life to
// its standard input: whoever started it holds the other end of that pipe, and
// the kernel closes it however that process ends. Linux has a signal for this;
// other systems have not.
const dieWithStdin = "RUNLEVEL_DIE_WITH_STDIN"

func main() {
	if os.Getenv(dieWithStdin) != "" {
		go exitAtEOF(os.Stdin)
	}
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kwok":
		if err := runKwok(); err != nil {
			fmt.Fprintln(os.Stderr, "kwok:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "%s: call me etcd, kube-apiserver, kube-controller-manager, kube-scheduler or kwok\n",
			name)
		os.Exit(2)
	}
}

func exitAtEOF(r io.Reader) {
	_, _ = io.Copy(io.Discard, r)
	os.Exit(1)
}

// runKwok does what kwok's own main does, without its version flag: the one
// that Kubernetes' component-base registers globally has the same name.
func runKwok() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, _ = kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := kwok.NewCommand(ctx)
	command.Version = ""
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}
