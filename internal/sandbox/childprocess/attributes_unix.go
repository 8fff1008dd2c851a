//go:build unix && !linux

package childprocess

import "syscall"

// DieWithParent returns no attributes: these systems send no signal when the parent of a process ends. Programs that
// package binaries builds watch their standard input instead; others keep running after a kill -9.
func DieWithParent() *syscall.SysProcAttr { return nil }

// ChildAttributes returns attributes that put a process into its own process group, so that Ctrl-C does not reach it
// before this process.
func ChildAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// Detached returns attributes that keep a process running when its terminal is closed.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
