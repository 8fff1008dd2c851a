//go:build unix && !linux

package sandbox

import "syscall"

// DieWithParent does nothing here; see below.
func DieWithParent() *syscall.SysProcAttr { return nil }

// ChildAttributes puts a program into a process group of its own, so that
// Ctrl-C does not reach it before this process. These systems have no signal for
// the end of the parent: programs that package binaries builds watch
// their standard input, and others keep running after a kill -9.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
