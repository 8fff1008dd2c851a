//go:build unix

package live

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResumed asks to be told when the program goes on that was stopped.
func notifyResumed(told chan<- os.Signal) { signal.Notify(told, syscall.SIGCONT) }
