//go:build unix

package sandbox

import "syscall"

// Detached lets a process live on without the terminal that it was started from.
func Detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
