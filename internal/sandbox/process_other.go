//go:build !unix

package sandbox

import "syscall"

// ChildAttributes is never used: without a control plane that runs here, Start
// fails before it comes to starting one.
func ChildAttributes() *syscall.SysProcAttr { return nil }

// DieWithParent is never used either.
func DieWithParent() *syscall.SysProcAttr { return nil }

// Detached is never used either.
func Detached() *syscall.SysProcAttr { return nil }
