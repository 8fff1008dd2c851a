package sandbox

import "syscall"

// DieWithParent has the kernel kill a process when the thread that started it ends.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// childAttributes puts a component into a process group of its own, so that a
// Ctrl-C meant for us does not reach it first, and has the kernel kill it when
// we die.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
