package childprocess

import "syscall"

// DieWithParent returns attributes that have the kernel kill a process when the thread that started it ends.
func DieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// ChildAttributes returns attributes that put a process into its own process group, so that Ctrl-C does not reach it
// before this process, and that have the kernel kill it when this process ends.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Detached returns attributes that keep a process running when its terminal is closed.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
