// Package watch calls a function each time that files have changed.
//
// It compares the names, sizes, times and permissions of files a few times a second, so it works on every
// file system, whatever way an editor, git or a build tool writes. It does not report what has changed, and
// reads no file. Folders and files may be missing, come and go, and be links that are changed.
//
// Paths is the call to start from.
package watch

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// defaultInterval is the time between two comparisons, if a Set names none.
	defaultInterval = 200 * time.Millisecond
	// maxUnsettled is how many comparisons in a row may show changes until the function is called all the same.
	maxUnsettled = 5
)

// scratch are patterns of the files that editors and other tools keep beside those they work on.
var scratch = []string{".git", ".DS_Store", "4913", ".*.sw?", ".#*", "#*#", "*.log"}

// A Set is what is watched.
type Set struct {
	// Paths are folders, of which the files are watched, and files. They may be missing.
	Paths []string
	// Within are the names of subfolders whose files are watched, too. Other subfolders are not.
	Within []string
	// Skip reports whether a file in a folder is not watched, such as one that the function writes to. Nil
	// skips none.
	Skip func(os.FileInfo) bool
	// Interval is the time between two comparisons; 0 means 200 ms.
	Interval time.Duration
}

// Paths calls a function, and again after each change of the set, until the context ends or the function
// returns an error, which it returns. The function is called once the files have been the same for an
// interval: a save is several changes, and half of a file is of no use.
func Paths(ctx context.Context, set Set, call func() error) error {
	tick := time.NewTicker(cmp.Or(set.Interval, defaultInterval))
	defer tick.Stop()
	last := set.snapshot()
	if err := call(); err != nil {
		return err
	}
	unsettled := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := set.snapshot()
		isSame := maps.EqualFunc(now, last, isUnchanged)
		if last = now; !isSame {
			unsettled++
		}
		if unsettled == maxUnsettled || isSame && unsettled > 0 {
			unsettled = 0
			if err := call(); err != nil {
				return err
			}
		}
	}
}

// snapshot returns the watched files that exist, by their paths. A link counts as the file that it leads to.
func (s Set) snapshot() map[string]os.FileInfo {
	found := map[string]os.FileInfo{}
	for _, path := range s.Paths {
		if info, err := os.Stat(path); err == nil {
			found[path] = info
		}
		s.addFolder(found, path, s.Within)
	}
	return found
}

// addFolder adds the files of a folder, and of those of its subfolders that have one of some names.
func (s Set) addFolder(found map[string]os.FileInfo, folder string, within []string) {
	entries, _ := os.ReadDir(folder) // of a file, or of a folder that can't be read, there are none
	for _, entry := range entries {
		name := entry.Name()
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		if err != nil || isScratch(name) || s.Skip != nil && s.Skip(info) {
			continue
		}
		found[path] = info
		if slices.Contains(within, name) {
			s.addFolder(found, path, nil)
		}
	}
}

// isUnchanged compares two states of a file. A folder's time and size change with the files in it, which are
// compared one by one.
func isUnchanged(a, b os.FileInfo) bool {
	if a.Mode() != b.Mode() || a.IsDir() {
		return a.Mode() == b.Mode()
	}
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

func isScratch(name string) bool {
	return slices.ContainsFunc(scratch, func(pattern string) bool {
		matches, _ := filepath.Match(pattern, name)
		return matches
	})
}
