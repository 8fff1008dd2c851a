package sandbox

import "runtime"

// A launcher starts child processes from one thread that lives until close.
//
// On Linux the children ask to be killed when their parent dies, and the kernel
// takes the parent to be the thread that forked them, not the process. A
// goroutine's thread may end at any time; this one's does not.
type launcher struct {
	jobs   chan func()
	closed chan struct{}
}

func newLauncher() *launcher {
	f := &launcher{jobs: make(chan func()), closed: make(chan struct{})}
	go f.work()
	return f
}

func (f *launcher) work() {
	runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
	for {
		select {
		case job := <-f.jobs:
			job()
		case <-f.closed:
			return
		}
	}
}

// do runs start on the thread and returns its error.
func (f *launcher) do(start func() error) error {
	result := make(chan error, 1)
	select {
	case f.jobs <- func() { result <- start() }:
		return <-result
	case <-f.closed:
		return errStopped
	}
}

// close lets the thread go. No child must be running any more: on Linux it would
// be killed.
func (f *launcher) close() { close(f.closed) }
