//go:build !unix

package live

import "os"

// echo does nothing here: these terminals are set in other ways.
type echo struct{ terminal *os.File }

func (*echo) turnOff() {}

func (*echo) restore() {}

// notifyResumed has nothing to ask for: programs are not stopped here.
func notifyResumed(chan<- os.Signal) {}
