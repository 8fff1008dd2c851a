package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	partialSuffix = ".partial" // of an unfinished file
	layoutVersion = `{"imageLayoutVersion":"1.0.0"}`
	copyBuffer    = 128 * kib
	lockInterval  = 100 * time.Millisecond
)

// A folder is the folder of a layout. Its files are written to partial ones, which are renamed when they are complete,
// and continued by the next process if this one is killed.
type folder struct {
	path string

	mu      sync.Mutex
	root    *os.Root     // nil before the first change
	process *flock.Flock // of oci-layout: one process at a time changes a layout
	busy    sync.Map     // a mutex for each digest
}

// open opens a file of the layout. Links may lead out of the layout, as those of some build
// tools do: their targets are compared with the digest.
func (f *folder) open(name string) (io.ReadSeekCloser, error) {
	full := filepath.Join(f.path, filepath.FromSlash(name))
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &RewordedError{Text: "the layout doesn't have it", Err: errors.Join(ErrNotFound, err)}
	case err != nil:
		return nil, WithoutPath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a file")
	}
	file, err := os.Open(full)
	if err != nil {
		return nil, WithoutPath(err)
	}
	return file, nil
}

// begin prepares the folder for a change, and returns it without links that lead out of it.
func (f *folder) begin(ctx context.Context) (*os.Root, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.root == nil {
		if err := f.tryBegin(ctx); ctx.Err() != nil || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, cmp.Or(context.Cause(ctx), diskError(f.path, err))
		}
	}
	return f.root, nil
}

// tryBegin fails with ErrNotExist if another process removes the folder of an archive meanwhile.
func (f *folder) tryBegin(ctx context.Context) error {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return err
	}
	marker, err := root.OpenFile(LayoutFile, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return errors.Join(err, root.Close())
	}
	defer marker.Close()
	f.process = flock.New(filepath.Join(f.path, LayoutFile), flock.SetFlag(os.O_RDONLY))
	_, err = f.process.TryLockContext(ctx, lockInterval)
	var held, now fs.FileInfo
	if err == nil {
		held, err = marker.Stat()
	}
	if err == nil {
		now, err = os.Stat(f.process.Path())
	}
	if err == nil && !os.SameFile(held, now) {
		err = fs.ErrNotExist
	}
	if err == nil && held.Size() == 0 {
		_, err = marker.WriteString(layoutVersion)
	}
	if err != nil {
		return errors.Join(err, root.Close(), f.process.Unlock())
	}
	f.root = root
	return nil
}

func (f *folder) putBlob(ctx context.Context, described v1.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	root, err := f.begin(ctx)
	if err != nil {
		return err
	}
	busy, _ := f.busy.LoadOrStore(described.Digest, &sync.Mutex{})
	busy.(*sync.Mutex).Lock()
	defer busy.(*sync.Mutex).Unlock()
	name := blobPath(described.Digest)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return diskError(f.path, err)
	}
	partial, err := root.OpenFile(name+partialSuffix, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return diskError(f.path, err)
	}
	defer partial.Close()
	info, err := partial.Stat()
	if err != nil {
		return diskError(f.path, err)
	}
	err = writeBlob(ctx, partial, info.Size(), described, open)
	if IsWrong(err) && info.Size() > 0 { // what was there before is perhaps the reason
		if err = partial.Truncate(0); err == nil {
			err = writeBlob(ctx, partial, 0, described, open)
		}
	}
	if IsWrong(err) {
		return errors.Join(err, partial.Close(), root.Remove(name+partialSuffix))
	}
	if err == nil {
		err = partial.Close()
	}
	if err == nil {
		err = root.Rename(name+partialSuffix, name)
	}
	return diskError(f.path, err)
}

// writeBlob writes the rest of a blob after its begin, and compares all of it with its digest.
func writeBlob(ctx context.Context, file *os.File, begin int64, described v1.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	if begin > described.Size {
		return wrongSize(begin, described.Size)
	}
	var rest io.ReadCloser = io.NopCloser(io.LimitReader(nil, 0))
	if begin < described.Size || begin == 0 {
		opened, err := open(begin)
		if err != nil {
			return err
		}
		rest = opened
	}
	defer rest.Close()
	whole := io.MultiReader(io.NewSectionReader(file, 0, begin), rest)
	checked, err := NewDigestReader(Interruptible(ctx, whole), described)
	if err != nil {
		return err
	}
	buffer := make([]byte, copyBuffer)
	if _, err := io.CopyBuffer(io.Discard, io.LimitReader(checked, begin), buffer); err != nil {
		return err
	}
	// without ReadFrom of the file, which has a small buffer
	written := struct{ io.Writer }{io.NewOffsetWriter(file, begin)}
	_, err = io.CopyBuffer(written, checked, buffer)
	return err
}

func (f *folder) commit(ctx context.Context, index []byte) error {
	if index == nil {
		return nil
	}
	root, err := f.begin(ctx)
	if err == nil {
		err = root.WriteFile(indexFile+partialSuffix, index, 0o644)
	}
	if err == nil {
		err = root.Rename(indexFile+partialSuffix, indexFile)
	}
	return diskError(f.path, err)
}

func (f *folder) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root == nil {
		return nil
	}
	err := errors.Join(f.root.Close(), f.process.Unlock())
	f.root = nil
	return err
}

// diskError explains errors of writing.
func diskError(path string, err error) error {
	path = strings.TrimSuffix(path, partialSuffix) // of an archive
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		text := fmt.Sprintf("the disk of %s is full: free some space, then run the command again", path)
		return &RewordedError{Text: text, Err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return &RewordedError{Text: fmt.Sprintf("%s can't be written: %v", path, WithoutPath(err)), Err: err}
	default:
		return err
	}
}
