package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/runlevel/runlevel/internal/oci"
)

func openDirectory(path string, limits Limits) (*Release, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, oci.WithoutPath(err)
	}
	files := &directory{root: root.FS(), limits: limits, sizes: map[string]int64{}}
	return &Release{FS: files, Kind: Directory, close: root.Close}, nil
}

// A directory is a folder on disk, of which only files and folders are read, within the
// limits. Its os.Root keeps links inside of the folder.
type directory struct {
	root   fs.FS
	limits Limits

	mu    sync.Mutex
	sizes map[string]int64 // sizes of the files that were read, each counted once
	total int64
}

var (
	_ fs.ReadDirFS = (*directory)(nil)
	_ fs.StatFS    = (*directory)(nil)
)

func (d *directory) Open(name string) (fs.File, error) {
	info, err := d.stat(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if info.IsDir() {
		return d.folder(name)
	}
	if err := d.charge(name, info.Size()); err != nil {
		return nil, pathError("open", name, err)
	}
	file, err := d.root.Open(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &boundedFile{File: file, name: name, left: info.Size()}, nil
}

func (d *directory) Stat(name string) (fs.FileInfo, error) {
	info, err := d.stat(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return info, nil
}

func (d *directory) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := d.stat(name)
	if err == nil && !info.IsDir() {
		err = errors.New("is not a folder")
	}
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	folder, err := d.folder(name)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// stat follows links. It is called before every open, which would block on a pipe and
// might have effects on a device.
func (d *directory) stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(d.root, name)
	switch {
	case err == nil && (info.IsDir() || info.Mode().IsRegular()):
		return info, nil
	case err == nil:
		return nil, errors.New("is neither a file nor a folder")
	}
	if target, notLink := fs.ReadLink(d.root, name); notLink == nil {
		return nil, fmt.Errorf("link to %q: %w", target, oci.WithoutPath(err))
	}
	return nil, err
}

// charge counts a file of that size against the limits.
func (d *directory) charge(name string, size int64) error {
	if size > d.limits.File {
		return oci.SizeError(fmt.Sprintf("it has %d bytes: the limit for one file is %s", size,
			oci.InBytes(d.limits.File)))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before, read := d.sizes[name]
	if !read && len(d.sizes) >= d.limits.Files {
		return oci.SizeError(fmt.Sprintf("there are more than %d files, which is the limit", d.limits.Files))
	}
	if more := max(0, size-before); d.total+more > d.limits.Total {
		return oci.SizeError(fmt.Sprintf("the files have more than %s together, which is the limit",
			oci.InBytes(d.limits.Total)))
	} else {
		d.total += more
	}
	d.sizes[name] = max(size, before)
	return nil
}

func (d *directory) folder(name string) (*boundedFolder, error) {
	opened, err := d.root.Open(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	folder, ok := opened.(fs.ReadDirFile)
	if !ok {
		opened.Close()
		return nil, pathError("open", name, errors.New("is not a folder"))
	}
	return &boundedFolder{ReadDirFile: folder, directory: d, name: name, left: d.limits.Files}, nil
}

// A boundedFile contains the size that was counted when it was opened. A file that grows is
// still being written, and is refused: half of a manifest is worse than none.
type boundedFile struct {
	fs.File
	name string
	left int64
}

func (f *boundedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.left -= int64(n)
	switch {
	case f.left < 0:
		return 0, pathError("read", f.name, errors.New("it grew while it was read"))
	case err != nil && !errors.Is(err, io.EOF):
		return n, pathError("read", f.name, err)
	default:
		return n, err
	}
}

// A boundedFolder lists at most as many entries as the limit.
type boundedFolder struct {
	fs.ReadDirFile
	directory *directory
	name      string
	left      int
}

func (f *boundedFolder) Read([]byte) (int, error) {
	return 0, pathError("read", f.name, errors.New("is a folder"))
}

func (f *boundedFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	wanted := n
	if n <= 0 || n > f.left {
		wanted = f.left + 1
	}
	entries, err := f.ReadDirFile.ReadDir(wanted)
	if n <= 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	if f.left -= len(entries); f.left < 0 {
		err := oci.SizeError(fmt.Sprintf("it has more than %d entries, which is the limit", f.directory.limits.Files))
		return nil, pathError("readdir", f.name, err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, pathError("readdir", f.name, err)
	}
	for i, entry := range entries {
		entries[i] = f.resolveLink(entry)
	}
	return entries, err
}

// resolveLink lists a link to a file as the file, as in an archive. Links to folders stay
// links: following them may never end.
func (f *boundedFolder) resolveLink(entry fs.DirEntry) fs.DirEntry {
	if entry.Type() != fs.ModeSymlink {
		return entry
	}
	info, err := fs.Stat(f.directory.root, path.Join(f.name, entry.Name()))
	if err != nil || !info.Mode().IsRegular() {
		return entry
	}
	return fs.FileInfoToDirEntry(info)
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: oci.WithoutPath(err)}
}
