//go:build unix

package notify

import (
	"os/exec"
	"syscall"
)

// withGroup puts a command into a process group of its own. Ctrl-C in a terminal does not reach it, and the end of its
// context kills the programs that it has started, too.
func withGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
