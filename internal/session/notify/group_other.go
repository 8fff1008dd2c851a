//go:build !unix

package notify

import "os/exec"

// withGroup does nothing here: the end of its context kills the shell alone.
func withGroup(*exec.Cmd) {}
