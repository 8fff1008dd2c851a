// Command kubectl is kubectl as its own project builds it, one of the peers that
// Runlevel is measured beside.
//
// Its module has the command, but no program: these are the few missing lines. The
// command is unchanged, and no part of Runlevel. Start with ../tools.go, which runs it.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
