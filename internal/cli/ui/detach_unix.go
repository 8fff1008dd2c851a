//go:build unix

package ui

import (
	"os/exec"
	"syscall"
)

// detach starts a command in a session of its own, so that Ctrl-C ends runlevel and not the browser.
func detach(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
