package component

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// An overlay is a file system with some files added, and some taken away.
type overlay struct {
	under fs.FS
	files map[string][]byte
	gone  map[string]bool
}

var (
	_ fs.ReadFileFS = (*overlay)(nil)
	_ fs.ReadDirFS  = (*overlay)(nil)
)

func (o *overlay) Open(name string) (fs.File, error) {
	if text, added := o.files[name]; added {
		return &openFile{Reader: bytes.NewReader(text), info: info{path.Base(name), int64(len(text))}}, nil
	}
	if o.gone[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	file, err := o.under.Open(name)
	if err != nil {
		return nil, err
	}
	if about, err := file.Stat(); err != nil || !about.IsDir() {
		return file, err
	}
	entries, err := o.ReadDir(name)
	return &openFolder{File: file, left: entries}, err
}

func (o *overlay) ReadFile(name string) ([]byte, error) {
	if text, added := o.files[name]; added {
		return slices.Clone(text), nil
	}
	if o.gone[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fs.ReadFile(o.under, name)
}

func (o *overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.under, name)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(entry fs.DirEntry) bool {
		full := path.Join(name, entry.Name())
		_, added := o.files[full]
		return added || o.gone[full]
	})
	for file, text := range o.files {
		if path.Dir(file) == name {
			entries = append(entries, fs.FileInfoToDirEntry(info{path.Base(file), int64(len(text))}))
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// An openFile is one that was added.
type openFile struct {
	*bytes.Reader
	info info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// An openFolder lists what the overlay has in it.
type openFolder struct {
	fs.File
	left []fs.DirEntry
}

func (f *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.left) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.left) {
		n = len(f.left)
	}
	listed := f.left[:n]
	f.left = f.left[n:]
	return listed, nil
}

// An info is about a file that was added.
type info struct {
	name string
	size int64
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o444 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }
