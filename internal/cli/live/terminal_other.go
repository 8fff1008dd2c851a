//go:build !unix

package live

import "os"

// echo does nothing on this platform.
type echo struct{ terminal *os.File }

func (*echo) turnOff() {}

func (*echo) restore() {}

// notifyOnResume does nothing: programs are not stopped on this platform.
func notifyOnResume(chan<- os.Signal) {}
