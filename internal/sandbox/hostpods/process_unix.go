//go:build unix && !linux

package hostpods

import "syscall"

// childAttributes keeps a Ctrl-C from a process. These systems have no signal for a parent's death: processes outlive
// a kill -9 of it until they next print something.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
