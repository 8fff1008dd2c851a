//go:build !unix

package binaries

import "os/exec"

// interruptible does nothing here: a context that ends kills the command.
func interruptible(*exec.Cmd) {}
