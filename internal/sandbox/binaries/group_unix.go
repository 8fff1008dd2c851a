//go:build unix

package binaries

import (
	"os/exec"
	"syscall"
)

// interruptible puts a command into its own process group, and has the end of its context interrupt the whole group:
// the go command waits for its compilers, which take long for the largest packages and get no signal that is sent to
// the go command alone.
func interruptible(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}
