//go:build unix && !linux

package sandbox

import "syscall"

// DieWithParent does nothing here; see below.
func DieWithParent() *syscall.SysProcAttr { return nil }

// ChildAttributes puts a program into a process group of its own, so that a
// Ctrl-C meant for us does not reach it first. These systems have no signal for
// a parent's death: there, the programs that package binaries builds watch
// their standard input, and others are left running by a kill -9.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
