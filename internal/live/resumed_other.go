//go:build !unix

package live

import "os"

// notifyResumed has nothing to ask for: programs are not stopped here.
func notifyResumed(chan<- os.Signal) {}
