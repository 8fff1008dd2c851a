package overlay

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"time"
)

// An openFile is one that was put there.
type openFile struct {
	*bytes.Reader
	info info
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

// An openFolder lists what is in it now. It does so when it is first asked: most who open
// a folder only want to know that it is one.
type openFolder struct {
	fs.File
	list     func() ([]fs.DirEntry, error)
	isListed bool
	left     []fs.DirEntry
}

// ReadDir lists the next entries: at most count of them, or all that are left.
func (f *openFolder) ReadDir(count int) (_ []fs.DirEntry, err error) {
	if !f.isListed {
		if f.left, err = f.list(); err != nil {
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

// An info is about a file that was put there.
type info struct {
	name string
	size int64
}

func infoOf(file string, text []byte) info { return info{path.Base(file), int64(len(text))} }

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return 0o444 }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return false }
func (i info) Sys() any           { return nil }
