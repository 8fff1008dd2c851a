//go:build !unix

package sandbox

import "syscall"

// ChildAttributes is never used: no control plane runs on these systems, so that Start
// fails before it starts a process.
func ChildAttributes() *syscall.SysProcAttr { return nil }

// DieWithParent is never used either.
func DieWithParent() *syscall.SysProcAttr { return nil }

// Detached is never used either.
func Detached() *syscall.SysProcAttr { return nil }
