// Command etcd-quorum-guard has the members of an etcd cluster follow the machines of the control plane, and holds a machine that
// is being deleted until its member has been replaced. It starts no members: who runs etcd on a new node does.
//
// It decides nothing itself: package etcdguard does, and its manager carries it out. The flags are in flags.go; this file
// has the signals, and package startup has what such programs have in common.
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
	startup.Main(ctx, "etcd-quorum-guard", "holds machines of the control plane until their etcd members have been replaced", newStart())
}
