// Package overlay is a file system with some files put into it, and some taken away,
// while what is under it stays as it is. So a release can be read as it will be, before
// anything is written, or where nothing may be.
//
// However it is asked, it tells the same: opened, read and listed files are those that
// are there now. It makes no folders: files are put into those that are there already.
//
// On is the call to start from.
package overlay

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// FS is a file system over another one. Once it is read, it must not be changed any more.
type FS struct {
	under fs.FS
	files map[string][]byte
	gone  map[string]bool
}

var (
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.StatFS     = (*FS)(nil)
)

// On is a file system that is still the same as what is under it.
func On(under fs.FS) *FS {
	return &FS{under: under, files: map[string][]byte{}, gone: map[string]bool{}}
}

// Put puts a file into a folder, in the place of the one that is called so, if any.
func (o *FS) Put(name string, text []byte) { o.files[name] = text }

// Remove takes a file away.
func (o *FS) Remove(name string) {
	delete(o.files, name)
	o.gone[name] = true
}

// Open opens a file or folder.
func (o *FS) Open(name string) (fs.File, error) {
	if text, isPut := o.files[name]; isPut {
		return &openFile{Reader: bytes.NewReader(text), info: infoOf(name, text)}, nil
	}
	if o.gone[name] {
		return nil, notThere("open", name)
	}
	file, err := o.under.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.IsDir() {
		return file, nil
	}
	return &openFolder{File: file, list: func() ([]fs.DirEntry, error) { return o.ReadDir(name) }}, nil
}

// ReadFile reads a file.
func (o *FS) ReadFile(name string) ([]byte, error) {
	if text, isPut := o.files[name]; isPut {
		return bytes.Clone(text), nil
	}
	if o.gone[name] {
		return nil, notThere("open", name)
	}
	return fs.ReadFile(o.under, name)
}

// ReadDir lists a folder.
func (o *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.under, name)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(entry fs.DirEntry) bool {
		file := path.Join(name, entry.Name())
		_, isPut := o.files[file]
		return isPut || o.gone[file]
	})
	for file, text := range o.files {
		if path.Dir(file) == name {
			entries = append(entries, fs.FileInfoToDirEntry(infoOf(file, text)))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Stat is about a file or folder.
func (o *FS) Stat(name string) (fs.FileInfo, error) {
	if text, isPut := o.files[name]; isPut {
		return infoOf(name, text), nil
	}
	if o.gone[name] {
		return nil, notThere("stat", name)
	}
	return fs.Stat(o.under, name)
}

func notThere(call, name string) error {
	return &fs.PathError{Op: call, Path: name, Err: fs.ErrNotExist}
}
