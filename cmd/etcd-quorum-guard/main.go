// Command etcd-quorum-guard has the members of an etcd cluster follow the machines of the control plane, and holds a machine that
// is being deleted until its member has been replaced. It starts no members: who runs etcd on a new node does.
//
// It decides nothing itself: package etcdguard does, and its manager carries it out. The flags are in flags.go; this file
// has the signals and the exit code.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/startup"
	"github.com/runlevel/runlevel/pkg/etcdguard/manager"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	startup.LimitMemory()
	ctrl.SetLogger(klog.Background())
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "etcd-quorum-guard:", err)
		os.Exit(1)
	}
}

// start runs the guard with the cluster that flags and environment name.
func start(ctx context.Context, o manager.Options) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.UserAgent = "etcd-quorum-guard"
	return manager.Run(ctx, config, o)
}
