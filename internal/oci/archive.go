package oci

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const maxEntries = 100_000 // files of an archive

// errLink is the error of a file whose content is elsewhere than its name in a tar.
var errLink = errors.New("it is a link or a sparse file in the archive: pack it with plain files")

// A section is the place of a file in an archive. Its size is negative for a link or a sparse file.
type section struct{ offset, size int64 }

// An archive is a tar of a layout. Its files are read where they are in the tar.
type archive struct {
	file     *os.File
	sections map[string]section
}

func openArchive(path string) (*archive, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe could block
		return nil, errors.New("it is neither a file nor a folder")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, WithoutPath(err)
	}
	sections, err := findSections(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, exists := sections[LayoutFile]; !exists {
		file.Close()
		return nil, fmt.Errorf("it is not an OCI image layout: not an uncompressed tar with a file %s", LayoutFile)
	}
	return &archive{file: file, sections: sections}, nil
}

// findSections returns the places of the files in a tar. If the layout is in a folder of it, names begin there.
func findSections(file *os.File) (map[string]section, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	sections, top := map[string]section{}, ""
	for entries := tar.NewReader(file); ; {
		header, err := entries.Next()
		if err == io.EOF || err != nil && len(sections) == 0 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it can't be read as a tar: %w", WithoutPath(err))
		}
		offset, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		switch {
		case header.Typeflag == tar.TypeDir || header.Typeflag == tar.TypeXGlobalHeader:
			continue
		case header.Typeflag != tar.TypeReg || strings.Contains(fmt.Sprint(header.PAXRecords), "GNU.sparse."):
			header.Size = -1
		case offset+header.Size > info.Size():
			return nil, errors.New("it's cut off: the end is missing")
		}
		if len(sections) == maxEntries {
			return nil, SizeError(fmt.Sprintf("it has more than %d files, which is the limit", maxEntries))
		}
		name := path.Clean(header.Name)
		sections[name] = section{offset, header.Size}
		if path.Base(name) == LayoutFile && top == "" {
			top = path.Dir(name) + "/"
		}
	}
	if top == "" || top == "./" {
		return sections, nil
	}
	inTop := map[string]section{}
	for name, place := range sections {
		if rest, isIn := strings.CutPrefix(name, top); isIn {
			inTop[rest] = place
		}
	}
	return inTop, nil
}

func (a *archive) open(name string) (io.ReadSeekCloser, error) {
	place, exists := a.sections[name]
	if !exists {
		return nil, &RewordedError{Text: "the archive doesn't have it", Err: ErrNotFound}
	}
	if place.size < 0 {
		return nil, errLink
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{io.NewSectionReader(a.file, place.offset, place.size), io.NopCloser(nil)}, nil
}

var errReadOnly = errors.New("an archive that was opened for reading can't be written")

func (*archive) begin(context.Context) (*os.Root, error) { return nil, errReadOnly }

func (*archive) putBlob(context.Context, v1.Descriptor, func(int64) (io.ReadCloser, error)) error {
	return errReadOnly
}

func (*archive) commit(context.Context, []byte) error { return errReadOnly }

func (a *archive) close() error { return a.file.Close() }
