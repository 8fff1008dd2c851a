// Package watch says when something in a set of folders and files may have changed, so
// that whoever reads them looks again.
//
// It does not say what has changed, and reads no file: editors, git and build tools have
// so many ways to write that only looking again is sure to be right. So it may say so in
// vain, and never keeps silent. Folders and files may be missing, go, come back, and be
// links that are made to lead elsewhere.
//
// Paths is the call to start from.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long nothing must change until it is time to look: a save is several
	// changes, and what is half written is worth nothing.
	quiet = 30 * time.Millisecond
	// most is how long a burst of changes is waited for. Some never end.
	most = 200 * time.Millisecond
)

// A Set is what to watch.
type Set struct {
	// Paths are folders and files. What is missing is waited for.
	Paths []string
	// Within are names of folders in those folders that are watched, too. No others are.
	Within []string
	// Skip says which files in watched folders are nobody's business, such as one that
	// looking writes to. It gets an absolute path, at any time, and not Paths themselves.
	Skip func(path string) bool
}

// Paths looks once it watches, and again when something may have changed since the last
// look began. It returns the first error of look, or that of the context.
func Paths(ctx context.Context, set Set, look func() error) error {
	w, err := newWatcher(set)
	if err != nil {
		return err
	}
	defer w.close()
	for {
		if err := w.place(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := look(); err != nil {
			return err
		}
		if err := w.await(ctx); err != nil {
			return err
		}
	}
}

// A watcher is told by the kernel of folders, and sorts out what matters.
type watcher struct {
	set     Set
	working string // the working directory, without links
	kernel  *fsnotify.Watcher
	heard   sync.WaitGroup // the listener

	places  atomic.Pointer[places]
	changed chan struct{} // holds one
	failed  chan error    // holds the first
}

func newWatcher(set Set) (*watcher, error) {
	working, err := os.Getwd()
	if err == nil {
		working, err = filepath.EvalSymlinks(working)
	}
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	kernel, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, explain(err)
	}
	w := &watcher{set: set, working: working, kernel: kernel, changed: make(chan struct{}, 1), failed: make(chan error, 1)}
	w.places.Store(&places{})
	w.heard.Go(w.listen)
	return w, nil
}

func (w *watcher) close() {
	_ = w.kernel.Close()
	w.heard.Wait()
}

// maxPlacings bounds how often folders may change between being found and being watched.
const maxPlacings = 100

// place watches what there is to watch now. Between finding a folder and watching it
// nobody tells of changes, so it is found again afterwards.
func (w *watcher) place() error {
	now := w.find()
	var gone error
	for range maxPlacings {
		w.places.Store(now) // first: what is told of it from now on counts
		if gone = w.add(now); gone != nil && !isGone(gone) {
			return explain(gone)
		}
		before := now
		if now = w.find(); gone == nil && now.equal(before) {
			w.drop(now)
			return nil
		}
	}
	w.tell() // they go on changing: look as it is, and then again
	return gone
}

// add watches all folders, those that are watched already included: they may be new ones
// of the same name, and the kernel knows.
func (w *watcher) add(now *places) error {
	for folder := range now.names {
		err := w.kernel.Add(folder)
		switch {
		case errors.Is(err, os.ErrPermission):
			now.locked.Store(true)
		case err != nil:
			return fmt.Errorf("watch %s: %w", folder, err)
		}
	}
	return nil
}

// drop ends watching folders that don't matter any more.
func (w *watcher) drop(now *places) {
	for _, folder := range w.kernel.WatchList() {
		if now.names[folder] == nil {
			_ = w.kernel.Remove(folder) // unless it is gone, and the watch with it
		}
	}
}

// listen hears all that the kernel says, at any time: fsnotify's own calls may wait for
// somebody to do so.
func (w *watcher) listen() {
	events, problems := w.kernel.Events, w.kernel.Errors
	for events != nil || problems != nil {
		select {
		case event, ok := <-events:
			switch {
			case !ok:
				events = nil
			case w.places.Load().concern(event, w.set.Skip):
				w.tell()
			}
		case err, ok := <-problems:
			switch {
			case !ok:
				problems = nil
			// Something was lost, or a folder went while its watch was taken away.
			case errors.Is(err, fsnotify.ErrEventOverflow), errors.Is(err, syscall.EINVAL), isGone(err):
				w.tell()
			default:
				w.fail(err)
			}
		}
	}
}

func (w *watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // it is said already
	}
}

func (w *watcher) fail(err error) {
	select {
	case w.failed <- explain(err):
	default:
	}
}

// await returns when something has changed and seems to be done.
func (w *watcher) await(ctx context.Context) error {
	var calm, enough <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-w.failed:
			return err
		case <-enough:
			return nil
		case <-calm:
			return nil
		case <-w.changed:
			calm = time.After(quiet)
			if enough == nil {
				enough = time.After(most)
			}
		}
	}
}

// isGone says whether there is nothing any more where a folder was.
func isGone(err error) bool {
	return slices.ContainsFunc([]error{os.ErrNotExist, syscall.ENOTDIR, fsnotify.ErrNonExistentWatch}, func(gone error) bool {
		return errors.Is(err, gone)
	})
}

// explain says what to do about limits, whose own names mislead: no disk is full.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return errors.New("too many folders are watched on this machine: raise the limit, with: sudo sysctl fs.inotify.max_user_watches=524288")
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return errors.New("too many programs watch files, or too many files are open: raise the limit, on Linux with: sudo sysctl fs.inotify.max_user_instances=1024, else with: ulimit -n 4096")
	default:
		return err
	}
}
