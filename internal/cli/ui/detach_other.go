//go:build !unix

package ui

import "os/exec"

// detach does nothing: rundll32 ends at once, and the browser is not its child.
func detach(*exec.Cmd) {}
