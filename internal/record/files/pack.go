package files

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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

// maxUnpacked bounds the content of a copy: a release has at most as much.
const maxUnpacked = 160 << 20

// A Packed is a release whose files are packed.
type Packed struct {
	Digest string // digest of the archive before it is compressed: the same content has the same digest
	pieces [][]byte
}

// An Unpacked is a kept release.
type Unpacked struct {
	Files  fs.FS  // nil if only the image is kept
	Image  string // image by digest, if only the image is stored
	Values []byte // values with which the files were read, as JSON
}

// Pack packs files of a release, with the values that they are read with.
func Pack(source fs.FS, names []string, values []byte) (*Packed, error) {
	p, err := newPacker()
	if err != nil {
		return nil, err
	}
	p.add(valuesEntry, values)
	for _, name := range slices.Sorted(slices.Values(names)) {
		text, err := fs.ReadFile(source, name)
		if err != nil {
			return nil, err
		}
		p.add(filesEntries+name, text)
	}
	return p.end()
}

// PackImage packs a reference to the image of a release, instead of its files.
func PackImage(image string, values []byte) (*Packed, error) {
	p, err := newPacker()
	if err != nil {
		return nil, err
	}
	p.add(valuesEntry, values)
	p.add(imageEntry, []byte(image))
	return p.end()
}

// A packer writes an archive without times and owners, so that the same content is the same archive.
type packer struct {
	packed     bytes.Buffer
	sum        hash.Hash
	compressed *zstd.Encoder
	archive    *tar.Writer
	err        error // the first one
}

// window limits how far back the compression finds repeated content. With a larger window, a release of OpenShift
// becomes a tenth smaller, and takes three times the memory.
const window = 1 << 20

func newPacker() (*packer, error) {
	p := &packer{sum: sha256.New()}
	var err error
	p.compressed, err = zstd.NewWriter(&p.packed, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(window))
	if err != nil {
		return nil, err
	}
	p.archive = tar.NewWriter(io.MultiWriter(p.compressed, p.sum))
	return p, nil
}

// add adds a file.
func (p *packer) add(name string, text []byte) {
	if p.err == nil {
		p.err = p.archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Size:     int64(len(text)),
			Mode:     0o644,
		})
	}
	if p.err == nil {
		_, p.err = p.archive.Write(text)
	}
}

// end returns the archive, in pieces.
func (p *packer) end() (*Packed, error) {
	if err := errors.Join(p.err, p.archive.Close(), p.compressed.Close()); err != nil {
		return nil, err
	}
	return &Packed{
		Digest: "sha256:" + hex.EncodeToString(p.sum.Sum(nil)),
		pieces: slices.Collect(slices.Chunk(p.packed.Bytes(), maxPiece)),
	}, nil
}

// unpack reads an archive, once its digest is compared. The content is decompressed twice, so that no memory is taken
// for content with another digest: a few kilobytes in a Secret can be decompressed to gigabytes.
func unpack(pieces [][]byte, digest string) (*Unpacked, error) {
	sum := sha256.New()
	size, err := decompress(pieces, func(archive io.Reader) (int64, error) { return io.Copy(sum, archive) })
	if err != nil {
		return nil, err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return nil, fmt.Errorf("its content has digest %s", got)
	}
	return decompress(pieces, func(archive io.Reader) (*Unpacked, error) { return read(tar.NewReader(archive), size) })
}

// decompress passes the archive of pieces to a function, and returns its result.
func decompress[T any](pieces [][]byte, use func(archive io.Reader) (T, error)) (result T, err error) {
	var readers []io.Reader
	for _, piece := range pieces {
		readers = append(readers, bytes.NewReader(piece))
	}
	compressed, err := zstd.NewReader(io.MultiReader(readers...), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return result, err
	}
	defer compressed.Close()
	return use(io.LimitReader(compressed, maxUnpacked))
}

// read returns the content of an archive, which has a size.
func read(archive *tar.Reader, size int64) (*Unpacked, error) {
	unpacked, found := &Unpacked{}, &txtar.Archive{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if header.Size > size {
			return nil, fmt.Errorf("%s has %d bytes, more than the rest of the archive", header.Name, header.Size)
		}
		size -= header.Size
		text := make([]byte, header.Size)
		if _, err := io.ReadFull(archive, text); err != nil {
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
