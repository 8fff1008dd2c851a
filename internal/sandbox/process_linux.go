package sandbox

import "syscall"

// DieWithParent has the kernel kill a process when the thread that started it ends.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// ChildAttributes puts a program into a process group of its own, so that
// Ctrl-C does not reach it before this process, and has the kernel kill it when
// this process ends.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
