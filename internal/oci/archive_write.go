package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A newArchive is an archive under change. Its new blobs are in a folder next to it, where an interrupted copy
// continues, until commit writes a new file.
type newArchive struct {
	*folder
	file string
	old  *archive // the archive as it is; nil if there is none
}

func createArchive(ctx context.Context, path string) (*newArchive, error) {
	n := &newArchive{file: path, folder: &folder{path: path + partialSuffix}}
	if _, err := n.begin(ctx); err != nil {
		return nil, err
	}
	if err := n.openOld(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// openOld opens the archive as it is, unless it has something that a new file would lack.
func (n *newArchive) openOld() error {
	if _, err := os.Stat(n.file); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var err error
	if n.old, err = openArchive(n.file); err != nil {
		return err
	}
	for name, place := range n.old.sections {
		if place.size < 0 {
			return errLink
		}
		if name == "manifest.json" {
			return errors.New(`its manifest.json, of "docker save", would be lost: write to another file`)
		}
	}
	return nil
}

func (n *newArchive) open(name string) (io.ReadSeekCloser, error) {
	file, err := n.folder.open(name)
	if errors.Is(err, ErrNotFound) && n.old != nil {
		return n.old.open(name)
	}
	return file, err
}

// commit writes a new file with all that the index needs. Later changes start from it.
func (n *newArchive) commit(ctx context.Context, index []byte) error {
	if index != nil {
		if err := n.replace(ctx, index); err != nil {
			return diskError(n.file, err)
		}
	}
	return n.root.RemoveAll("blobs")
}

func (n *newArchive) replace(ctx context.Context, index []byte) error {
	path := filepath.Join(n.folder.path, "new.tar")
	written, err := n.root.Create(filepath.Base(path))
	if err != nil {
		return err
	}
	if err = n.write(ctx, written, index); err == nil {
		err = written.Sync()
	}
	if err = errors.Join(err, written.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	if n.old != nil {
		err = n.old.close()
		n.old = nil
	}
	if err == nil {
		err = os.Rename(path, n.file)
	}
	return errors.Join(err, n.openOld())
}

// write writes an archive with the blobs that an index needs. What a damaged one lacks, it lacks afterwards, too.
func (n *newArchive) write(ctx context.Context, out io.Writer, index []byte) error {
	names, err := n.needed(index)
	if err != nil {
		return err
	}
	archive, buffer := tar.NewWriter(out), make([]byte, copyBuffer)
	add := func(name string, content io.ReadSeeker) error {
		size, err := content.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = content.Seek(0, io.SeekStart)
		}
		if err == nil {
			err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size})
		}
		if err == nil {
			_, err = io.CopyBuffer(struct{ io.Writer }{archive}, Interruptible(ctx, content), buffer)
		}
		return err
	}
	err = errors.Join(add(LayoutFile, strings.NewReader(layoutVersion)), add(indexFile, bytes.NewReader(index)))
	for _, name := range names {
		file, missing := n.open(name)
		if err != nil || errors.Is(missing, ErrNotFound) {
			continue
		}
		if err = missing; err == nil {
			err = errors.Join(add(name, file), file.Close())
		}
	}
	return errors.Join(err, archive.Close())
}

// needed returns the names of the blobs below an index, sorted.
func (n *newArchive) needed(index []byte) ([]string, error) {
	none := blobPath(v1.Hash{})           // of a manifest without a config or subject
	needed := map[string]bool{none: true} // true for manifests
	for raw, todo := index, []string(nil); ; todo = todo[1:] {
		var parts struct {
			Config    v1.Descriptor   `json:"config"`
			Subject   v1.Descriptor   `json:"subject"`
			Layers    []v1.Descriptor `json:"layers"`
			Blobs     []v1.Descriptor `json:"blobs"` // of an artifact
			Manifests []v1.Descriptor `json:"manifests"`
		}
		_ = json.Unmarshal(raw, &parts) // what is no manifest has no parts
		for _, blob := range slices.Concat(parts.Layers, parts.Blobs, []v1.Descriptor{parts.Config}) {
			if name := blobPath(blob.Digest); !needed[name] {
				needed[name] = false
			}
		}
		for _, manifest := range append(parts.Manifests, parts.Subject) {
			if name := blobPath(manifest.Digest); !needed[name] {
				needed[name], todo = true, append(todo, name)
			}
		}
		if len(todo) == 0 {
			delete(needed, none)
			return slices.Sorted(maps.Keys(needed)), nil
		}
		var err error
		if raw, err = readAll(n, todo[0]); err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
}

func (n *newArchive) close() error {
	var err error
	if n.old != nil {
		err = n.old.close()
	}
	if _, missing := os.Stat(filepath.Join(n.folder.path, "blobs")); missing != nil { // nothing to continue with
		err = errors.Join(err, os.RemoveAll(n.folder.path))
	}
	return errors.Join(err, n.folder.close())
}
