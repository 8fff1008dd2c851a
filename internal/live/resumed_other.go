//go:build !unix

package live

import "os"

// notifyResumed has nothing to ask for: nobody stops programs here.
func notifyResumed(chan<- os.Signal) {}
