package files

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/tools/txtar"
)

// The entries of the archive.
const (
	valuesEntry  = "values.json"
	imageEntry   = "image"
	filesEntries = "files/"
)

// maxUnpacked bounds the memory that a copy takes when it is read: a release has at most as much.
const maxUnpacked = 160 << 20

// A Packed is a release that is packed to be kept.
type Packed struct {
	Digest string // of the archive before it is compressed: the same content has the same digest
	pieces [][]byte
}

// An Unpacked is a kept release.
type Unpacked struct {
	Files  fs.FS  // nil if only the image is kept
	Image  string // by digest, if only that is kept
	Values []byte // with which the files were read, as JSON
}

// Pack packs files of a release, with the values that they are read with.
func Pack(from fs.FS, names []string, values []byte) (*Packed, error) {
	contents := []txtar.File{{Name: valuesEntry, Data: values}}
	for _, name := range slices.Sorted(slices.Values(names)) {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		contents = append(contents, txtar.File{Name: filesEntries + name, Data: text})
	}
	return pack(contents)
}

// PackImage packs a reference to the image of a release, instead of its files.
func PackImage(image string, values []byte) (*Packed, error) {
	return pack([]txtar.File{{Name: valuesEntry, Data: values}, {Name: imageEntry, Data: []byte(image)}})
}

// pack writes an archive without times and owners, so that the same content is the same archive.
func pack(contents []txtar.File) (*Packed, error) {
	var packed bytes.Buffer
	compressed, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(compressed, sum))
	for _, file := range contents {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.Name, Size: int64(len(file.Data)), Mode: 0o644}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(file.Data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return &Packed{
		Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)),
		pieces: slices.Collect(slices.Chunk(packed.Bytes(), maxPiece)),
	}, nil
}

// unpack reads an archive, and compares it with its digest.
func unpack(pieces [][]byte, digest string) (*Unpacked, error) {
	compressed, err := zstd.NewReader(bytes.NewReader(slices.Concat(pieces...)), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	defer compressed.Close()
	text, err := io.ReadAll(io.LimitReader(compressed, maxUnpacked))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != digest {
		return nil, fmt.Errorf("its content has digest %s", got)
	}
	return read(tar.NewReader(bytes.NewReader(text)))
}

// read returns the content of an archive.
func read(archive *tar.Reader) (*Unpacked, error) {
	unpacked, found := &Unpacked{}, &txtar.Archive{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		name, isFile := strings.CutPrefix(header.Name, filesEntries)
		switch {
		case isFile:
			found.Files = append(found.Files, txtar.File{Name: name, Data: text})
		case header.Name == valuesEntry:
			unpacked.Values = text
		case header.Name == imageEntry:
			unpacked.Image = string(text)
		}
	}
	if unpacked.Image != "" {
		return unpacked, nil
	}
	var err error
	unpacked.Files, err = txtar.FS(found)
	return unpacked, err
}
