// Command kubectl is kubectl as its own project builds it: one of the tools with which Runlevel is compared.
//
// The module of kubectl has the command, but no main function: this file adds the missing lines. The command is
// unchanged, and is not part of Runlevel.
//
// Start with ../tools.go, which runs the command.
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
