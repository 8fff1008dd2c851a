//go:build unix

package sandbox

import "syscall"

// Detached keeps a process running when its terminal is closed.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
