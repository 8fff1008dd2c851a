//go:build !unix

package hostpods

import "syscall"

// childAttributes is never used: there is no control plane that runs here.
func childAttributes() *syscall.SysProcAttr { return nil }
