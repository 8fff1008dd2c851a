// Command node is kubelet and kube-proxy in one program. It acts as the
// component whose name it is called by, through links to it.
//
// It lives in a module of its own for the reason that ../controlplane does.
// Package internal/sandbox builds it for real nodes when no ready-made programs
// are at hand; start there. Nothing else should need to run it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kube-proxy":
		os.Exit(cli.Run(proxy.NewProxyCommand()))
	default:
		fmt.Fprintf(os.Stderr, "%s: call me kubelet or kube-proxy\n", name)
		os.Exit(2)
	}
}
