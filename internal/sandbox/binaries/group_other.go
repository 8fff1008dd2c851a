//go:build !unix

package binaries

import "os/exec"

// interruptible does nothing on these systems: the end of the context kills the command.
func interruptible(*exec.Cmd) {}
