//go:build !unix

package childprocess

import "syscall"

// ChildAttributes is never called: package binaries refuses to find programs for these systems.
func ChildAttributes() *syscall.SysProcAttr { return nil }

// DieWithParent is never called.
func DieWithParent() *syscall.SysProcAttr { return nil }

// Detached is never called.
func Detached() *syscall.SysProcAttr { return nil }
