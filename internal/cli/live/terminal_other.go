//go:build !unix

package live

import "os"

// echo does nothing on this platform.
type echo struct{ terminal *os.File }

func (*echo) turnOff() {}

func (*echo) restore() {}

// notifyResumed does nothing: programs are not stopped on this platform.
func notifyResumed(chan<- os.Signal) {}
