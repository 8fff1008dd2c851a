package fix

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// FS is the files as they will be, for those who read files and folders.
func (p *Patch) FS() fs.FS {
	gone := map[string]bool{}
	for _, change := range p.changes {
		gone[change.Path] = true
	}
	return patched{FS: p.files, changes: p.changes, gone: gone}
}

// patched are files with some changed.
type patched struct {
	fs.FS
	changes map[string]*Change
	gone    map[string]bool // what changed files were called
}

// ReadFile reads a file.
func (p patched) ReadFile(name string) ([]byte, error) {
	if change := p.changes[name]; change != nil {
		return change.After, nil
	}
	if p.gone[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fs.ReadFile(p.FS, name)
}

// ReadDir lists a folder.
func (p patched) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(p.FS, name)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return p.gone[path.Join(name, e.Name())] })
	for file := range p.changes {
		if path.Dir(file) == name {
			entries = append(entries, entry(path.Base(file)))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// An entry is a changed file in its folder. There is nothing on a disk to say more of.
type entry string

// Name is that of the file.
func (e entry) Name() string { return string(e) }

// IsDir says that it is no folder.
func (e entry) IsDir() bool { return false }

// Type says that it is a file like others.
func (e entry) Type() fs.FileMode { return 0 }

// Info is not known.
func (e entry) Info() (fs.FileInfo, error) { return nil, fs.ErrInvalid }
