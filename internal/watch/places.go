package watch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/fsnotify/fsnotify"
)

// everything stands for all names in a folder.
const everything = ""

// scratch are files that editors and others keep beside those they work on, and write
// while nothing is saved.
var scratch = []string{".git", ".DS_Store", "4913", ".*.sw?", ".#*", "#*#", "*.log"}

// maxLinks is how many links a path may lead through: more are a circle.
const maxLinks = 40

// places are the folders to watch, and the names in them that matter. Folders are
// absolute and without links, so that each is there once.
type places struct {
	names  map[string]map[string]bool
	locked atomic.Bool // some folder may not be read, so that permissions matter
}

// find finds what there is to watch now.
func (w *watcher) find() *places {
	p := &places{names: map[string]map[string]bool{}}
	for _, path := range w.set.Paths {
		from := w.working
		if filepath.IsAbs(path) {
			from = string(filepath.Separator)
		}
		p.addFolder(p.follow(from, path), w.set.Within)
	}
	return p
}

// addFolder adds a folder, those within, and what its links lead to.
func (p *places) addFolder(folder string, within []string) {
	if folder == "" {
		return
	}
	p.add(folder, everything)
	entries, _ := os.ReadDir(folder) // what can't be read has nothing in it to watch
	for _, entry := range entries {
		switch {
		case slices.Contains(within, entry.Name()):
			p.addFolder(p.follow(folder, entry.Name()), nil)
		case entry.Type() == os.ModeSymlink:
			p.follow(folder, entry.Name())
		}
	}
}

func (p *places) add(folder, name string) {
	if p.names[folder] == nil {
		p.names[folder] = map[string]bool{}
	}
	p.names[folder][name] = true
}

// follow goes along a path, from a folder without links, and adds each place where it
// may come to lead elsewhere: links, what is missing, and the end. Of an absolute path
// the folders on the way count as lasting; those below the working directory come and
// go with the branch that is checked out. It returns the folder at the end, if it is one.
func (p *places) follow(from, path string) string {
	here, way := from, steps(path)
	isLasting := filepath.IsAbs(path)
	for links := 0; len(way) > 0; {
		name := way[0]
		way = way[1:]
		if name == ".." {
			here = filepath.Dir(here)
			continue
		}
		next := filepath.Join(here, name)
		info, err := os.Lstat(next)
		isLink := err == nil && info.Mode()&os.ModeSymlink != 0
		if err != nil || isLink || len(way) == 0 || !isLasting {
			p.add(here, name)
		}
		switch {
		case err != nil:
			return ""
		case isLink:
			target, err := os.Readlink(next)
			if links++; err != nil || links > maxLinks {
				return ""
			}
			if filepath.IsAbs(target) {
				here, isLasting = string(filepath.Separator), true
			}
			way = append(steps(target), way...)
		case !info.IsDir():
			return ""
		default:
			here = next
		}
	}
	return here
}

// steps are the names in a path. It is not made shorter: a link and ".." after it do
// not cancel out.
func steps(path string) []string {
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(name string) bool { return name == "" || name == "." })
}

// equal says whether the same is to be watched.
func (p *places) equal(other *places) bool {
	return maps.EqualFunc(p.names, other.names, maps.Equal)
}

// concern says whether an event may be a change to what is watched.
func (p *places) concern(event fsnotify.Event, skip func(path string) bool) bool {
	path := event.Name
	folder, name := filepath.Dir(path), filepath.Base(path)
	switch {
	case event.Op == fsnotify.Chmod && !p.locked.Load():
		return false
	case p.names[path] != nil, p.names[folder][name]:
		return true
	default:
		return p.names[folder][everything] && !isScratch(name) && (skip == nil || !skip(path))
	}
}

func isScratch(name string) bool {
	return slices.ContainsFunc(scratch, func(pattern string) bool {
		matches, _ := filepath.Match(pattern, name)
		return matches
	})
}
