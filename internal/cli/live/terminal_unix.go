//go:build unix

package live

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"
)

// echo turns off the echo of a terminal: otherwise, typed characters would appear in the screen, and Enter would move
// the screen. No other setting changes: Ctrl-C stays a signal, and the shell reads typed input afterwards. After a
// kill -9, the echo stays off until the shell turns it on again, as bash and zsh do.
type echo struct {
	terminal *os.File
	isOff    bool
}

// turnOff turns the echo off. It does nothing in the background, where the terminal belongs to another process.
func (e *echo) turnOff() {
	if state := e.state(); state != nil && state.Lflag&unix.ECHO != 0 {
		state.Lflag &^= unix.ECHO
		e.isOff = term.SetState(e.terminal.Fd(), state) == nil
	}
}

// restore turns the echo on again if turnOff has turned it off.
func (e *echo) restore() {
	if state := e.state(); state != nil && e.isOff {
		state.Lflag |= unix.ECHO
		_ = term.SetState(e.terminal.Fd(), state)
	}
}

// state returns the state of the terminal, or nil for a process in the background: setting the state would stop such a
// process.
func (e *echo) state() *term.State {
	group, err := unix.IoctlGetInt(int(e.terminal.Fd()), unix.TIOCGPGRP)
	if err == nil && group != unix.Getpgrp() {
		return nil
	}
	state, err := term.GetState(e.terminal.Fd())
	if err != nil {
		return nil
	}
	return state
}

// notifyOnResume sends a signal on the channel when the stopped program resumes.
func notifyOnResume(resumed chan<- os.Signal) { signal.Notify(resumed, syscall.SIGCONT) }
