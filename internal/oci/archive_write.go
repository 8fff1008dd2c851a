package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gofrs/flock"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A newArchive is an unfinished archive. It replaces a file when it is complete. If this process is killed, the
// next one takes over the blobs of the partial file.
type newArchive struct {
	path string
	old  *archive // whose blobs are kept; nil if there was none

	mu      sync.Mutex
	partial archive
	lock    *flock.Flock
	end     int64           // of the last section
	used    map[string]bool // blobs that are part of the result
	busy    sync.Map
}

func createArchive(path string) (*newArchive, error) {
	created := &newArchive{path: path, used: map[string]bool{}}
	if _, err := os.Stat(path); err == nil {
		if created.old, err = openArchive(path); err != nil {
			return nil, err
		}
	}
	partial, err := os.OpenFile(path+partialSuffix, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, diskError(path, err)
	}
	created.lock = flock.New(path+partialSuffix, flock.SetFlag(os.O_RDONLY))
	if locked, err := created.lock.TryLock(); err != nil || !locked {
		partial.Close()
		return nil, errors.Join(errors.New("another process writes to it"), err)
	}
	sections, err := findSections(partial, true)
	if err != nil {
		return nil, errors.Join(err, created.close())
	}
	created.partial = archive{file: partial, sections: sections}
	for _, place := range sections {
		created.end = max(created.end, place.offset+padded(place.size))
	}
	if place, isComplete := sections[LayoutFile]; isComplete { // it was about to be renamed
		created.end = place.offset - tarBlock
		delete(sections, LayoutFile)
		delete(sections, indexFile)
	}
	return created, nil
}

// padded returns the size of a file in a tar.
func padded(size int64) int64 { return (size + tarBlock - 1) / tarBlock * tarBlock }

func (n *newArchive) open(name string) (io.ReadSeekCloser, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, isBlob := n.partial.sections[name]; isBlob {
		n.used[name] = true
		return n.partial.open(name)
	}
	if n.old == nil {
		return nil, &RewordedError{Text: "the archive doesn't have it", Err: ErrNotFound}
	}
	return n.old.open(name)
}

// place returns the place of a file, which is at the end if the archive doesn't have it.
func (n *newArchive) place(name string, size int64) (section, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if place, isThere := n.partial.sections[name]; isThere && place.size == size {
		n.used[name] = true
		return place, nil
	}
	return n.reserve(name, size)
}

// reserve returns a new place at the end.
func (n *newArchive) reserve(name string, size int64) (section, error) {
	var header bytes.Buffer
	entry := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}
	if err := tar.NewWriter(&header).WriteHeader(entry); err != nil {
		return section{}, err
	}
	if _, err := n.partial.file.WriteAt(header.Bytes(), n.end); err != nil {
		return section{}, err
	}
	place := section{n.end + int64(header.Len()), size}
	n.end = place.offset + padded(size)
	n.partial.sections[name], n.used[name] = place, true
	return place, nil
}

func (n *newArchive) putBlob(ctx context.Context, described v1.Descriptor,
	open func(offset int64) (io.ReadCloser, error)) error {
	defer lockDigest(&n.busy, described.Digest)()
	found, err := n.place(blobPath(described.Digest), described.Size)
	if err == nil {
		err = writeBlob(ctx, place{file: n.partial.file, offset: found.offset}, described, open)
	}
	return diskError(n.path, err)
}

// commit adds the blobs of the old archive, and the index, and replaces the old archive.
func (n *newArchive) commit(ctx context.Context, index []byte) error {
	err := n.finish(ctx, index)
	if err == nil {
		err = os.Rename(n.path+partialSuffix, n.path)
	}
	return diskError(n.path, err)
}

func (n *newArchive) finish(ctx context.Context, index []byte) error {
	if err := n.dropUnused(); err != nil {
		return err
	}
	if n.old != nil {
		if err := n.keepOld(ctx); err != nil {
			return err
		}
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{LayoutFile, []byte(layoutVersion)}, {indexFile, index}} {
		place, err := n.place(file.name, int64(len(file.content)))
		if err != nil {
			return err
		}
		if _, err := n.partial.file.WriteAt(file.content, place.offset); err != nil {
			return err
		}
	}
	if err := n.partial.file.Truncate(n.end); err != nil {
		return err
	}
	return n.partial.file.Truncate(n.end + 2*tarBlock) // a tar ends with two empty blocks
}

// keepOld copies the blobs of the old archive that the new one doesn't have.
func (n *newArchive) keepOld(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(n.old.sections)) {
		if _, isThere := n.partial.sections[name]; isThere || !strings.HasPrefix(name, "blobs/") {
			continue
		}
		from := n.old.sections[name]
		place, err := n.place(name, from.size)
		if err != nil {
			return err
		}
		content := Interruptible(ctx, io.NewSectionReader(n.old.file, from.offset, from.size))
		if _, err := io.Copy(io.NewOffsetWriter(n.partial.file, place.offset), content); err != nil {
			return err
		}
	}
	return nil
}

// dropUnused removes what an interrupted process has left and is not part of this result: the others move up.
func (n *newArchive) dropUnused() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.partial.sections
	byPlace := func(a, b string) int { return cmp.Compare(old[a].offset, old[b].offset) }
	names := slices.SortedFunc(maps.Keys(old), byPlace)
	n.partial.sections, n.end = map[string]section{}, 0
	for _, name := range names {
		if !n.used[name] {
			continue
		}
		place, err := n.reserve(name, old[name].size)
		if err != nil {
			return err
		}
		if place == old[name] {
			continue
		}
		content := io.NewSectionReader(n.partial.file, old[name].offset, place.size)
		if _, err := io.Copy(io.NewOffsetWriter(n.partial.file, place.offset), content); err != nil {
			return err
		}
	}
	return nil
}

func (n *newArchive) close() error {
	err := errors.Join(n.partial.file.Close(), n.lock.Unlock())
	if n.end == 0 { // nothing to continue with
		err = errors.Join(err, os.Remove(n.path+partialSuffix))
	}
	if n.old != nil {
		err = errors.Join(err, n.old.close())
	}
	return err
}
