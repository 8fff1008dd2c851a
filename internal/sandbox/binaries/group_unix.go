//go:build unix

package binaries

import (
	"os/exec"
	"syscall"
)

// interruptible puts a command into its own process group. When the context ends, the whole group is interrupted: the
// go command waits for its compilers, which take long for the largest packages and don't get signals to the go command.
func interruptible(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
}
