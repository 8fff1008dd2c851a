//go:build unix

package live

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"
)

// echo turns off that a terminal shows what is typed into it: that would be in the midst of the
// screen, and Enter would move it. Nothing else changes: Ctrl-C stays a signal, and the shell reads
// afterwards what was typed. A kill -9 leaves it off where the shell does not turn it on again, as
// bash and zsh do.
type echo struct {
	terminal *os.File
	isOff    bool
}

// turnOff does nothing in the background, where the terminal belongs to another process.
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

// state returns how the terminal is set, or nil for a process in the background: one that sets its
// terminal is stopped.
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

// notifyResumed asks to be told when the program goes on that was stopped.
func notifyResumed(told chan<- os.Signal) { signal.Notify(told, syscall.SIGCONT) }
