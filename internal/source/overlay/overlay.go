// Package overlay is a file system with files that replace, or hide, those of another one, which is not
// changed. So a release can be read with a change before the change is written.
//
// Files can only be put into folders that exist.
//
// Start with On.
package overlay

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// FS is a file system over another one. It must not be changed after it was first read.
type FS struct {
	under   fs.FS
	files   map[string][]byte
	removed map[string]bool
}

var _ fs.ReadDirFS = (*FS)(nil)

// On returns an overlay that has no changes yet.
func On(under fs.FS) *FS {
	return &FS{under: under, files: map[string][]byte{}, removed: map[string]bool{}}
}

// Put puts a file into a folder, and replaces one of the same name.
func (f *FS) Put(name string, text []byte) { f.files[name] = text }

// Remove hides a file.
func (f *FS) Remove(name string) {
	delete(f.files, name)
	f.removed[name] = true
}

// Open opens a file or folder.
func (f *FS) Open(name string) (fs.File, error) {
	if text, isPut := f.files[name]; isPut {
		return openText(name, text)
	}
	if f.removed[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	file, err := f.under.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.IsDir() {
		return file, nil
	}
	return &folder{File: file, overlay: f, name: name}, nil
}

// openText returns an open file with a text.
func openText(name string, text []byte) (fs.File, error) {
	files, err := txtar.FS(&txtar.Archive{Files: []txtar.File{{Name: path.Base(name), Data: text}}})
	if err != nil {
		return nil, err
	}
	return files.Open(path.Base(name))
}

// ReadDir lists a folder.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(f.under, name)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(entry fs.DirEntry) bool {
		file := path.Join(name, entry.Name())
		_, isPut := f.files[file]
		return isPut || f.removed[file]
	})
	for file := range f.files {
		if path.Dir(file) == name {
			info, err := fs.Stat(f, file)
			if err != nil {
				return nil, err
			}
			entries = append(entries, fs.FileInfoToDirEntry(info))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// A folder is an open folder of an overlay. Its entries are listed at the first call of ReadDir.
type folder struct {
	fs.File
	overlay  *FS
	name     string
	isListed bool
	left     []fs.DirEntry
}

// ReadDir returns the next entries, at most count, or all remaining ones.
func (f *folder) ReadDir(count int) (_ []fs.DirEntry, err error) {
	if !f.isListed {
		if f.left, err = f.overlay.ReadDir(f.name); err != nil {
			return nil, err
		}
		f.isListed = true
	}
	if count > 0 && len(f.left) == 0 {
		return nil, io.EOF
	}
	if count <= 0 || count > len(f.left) {
		count = len(f.left)
	}
	listed := f.left[:count]
	f.left = f.left[count:]
	return listed, nil
}
