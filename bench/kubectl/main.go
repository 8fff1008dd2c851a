// Command kubectl is kubectl as its own project builds it, one of the peers that
// Runlevel is measured beside.
//
// Its module has the command, but no program: this is the few lines that are
// missing. It is no part of Runlevel, and nothing in it is changed. Start with
// ../driver.
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
