package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/runlevel/runlevel/internal/oci"
)

// The magic numbers of compressed streams and of a tar.
const (
	gzipMagic   = "\x1f\x8b"
	zstdMagic   = "\x28\xb5\x2f\xfd"
	ustarMagic  = "ustar"
	ustarOffset = 257
	tarBlock    = 512
)

// maxWindow is the maximum window of a zstd stream in memory: the default limit of the
// zstd command.
const maxWindow = 128 * mib

var errNoArchive = phrase{text: "is not a tar, tar.gz or tar.zst archive"}

func openArchive(ctx context.Context, path string, limits Limits) (*Release, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, oci.WithoutPath(err)
	}
	defer file.Close()
	files, err := readArchive(oci.Interruptible(ctx, file), limits)
	if err != nil {
		return nil, err
	}
	return &Release{FS: files, Kind: Archive}, nil
}

// readArchive reads a whole archive into memory.
func readArchive(archive io.Reader, limits Limits) (fs.FS, error) {
	unpacked, done, err := decompress(archive)
	if err != nil {
		return nil, err
	}
	defer done()
	counted := bufio.NewReader((&budget{limits: limits}).countingReader(unpacked))
	switch first, err := counted.Peek(tarBlock); {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, corruptionError(err)
	case len(first) < tarBlock || !bytes.HasPrefix(first[ustarOffset:], []byte(ustarMagic)):
		return nil, errNoArchive
	}
	tail := &lastBlock{from: counted}
	entries := newTree(&budget{limits: limits}, false)
	if err := entries.read(tail); err != nil {
		return nil, err
	}
	if !tail.isZero() {
		return nil, corruptionError(io.ErrUnexpectedEOF)
	}
	// The checksum of a compressed stream is only checked at its end.
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return nil, corruptionError(err)
	}
	root := entries.top()
	if entries.isLayout(root) {
		return nil, phrase{text: "holds an OCI image layout, which has to be an uncompressed file"}
	}
	return entries.files(root, limits)
}

// decompress unpacks a compressed stream. It finds the compression by the first bytes: names are often
// wrong. The caller has to call the returned function at the end.
func decompress(stream io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReaderSize(stream, 64*kib)
	first, err := buffered.Peek(len(zstdMagic))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, nil, err
	case bytes.HasPrefix(first, []byte(gzipMagic)):
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, corruptionError(err)
		}
		return unzipped, func() { unzipped.Close() }, nil
	case bytes.HasPrefix(first, []byte(zstdMagic)):
		unpacked, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, corruptionError(err)
		}
		return unpacked, unpacked.Close, nil
	default:
		return buffered, func() {}, nil
	}
}

// corruptionError returns the error of a stream that can't be read.
func corruptionError(err error) error {
	var badBits flate.CorruptInputError
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return oci.SizeError("unpacking it needs more memory than " + oci.InBytes(maxWindow) + ", which is the limit")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("it's cut off: the end is missing")
	case oci.IsSizeError(err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &badBits):
		return errors.New("it's damaged: its compressed content can't be unpacked")
	default:
		return fmt.Errorf("it's damaged: %w", err)
	}
}

// A lastBlock is a reader that keeps the last block read. A tar ends with blocks of
// zeros; one that was cut between two files otherwise looks complete.
type lastBlock struct {
	from io.Reader
	last []byte
}

func (l *lastBlock) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	l.last = append(l.last, p[max(0, n-tarBlock):n]...)
	l.last = append(l.last[:0], l.last[max(0, len(l.last)-tarBlock):]...)
	return n, err
}

func (l *lastBlock) isZero() bool {
	return len(bytes.Trim(l.last, "\x00")) == 0
}
