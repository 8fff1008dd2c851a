package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A digestReader compares a stream with the size and digest of its descriptor.
type digestReader struct {
	from io.Reader
	want v1.Descriptor
	sum  hash.Hash
	size int64
}

func newDigestReader(reader io.Reader, want v1.Descriptor) (*digestReader, error) {
	sum, err := v1.Hasher(want.Digest.Algorithm)
	if err != nil {
		return nil, err
	}
	return &digestReader{from: reader, want: want, sum: sum}, nil
}

func (d *digestReader) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	d.size += int64(n)
	d.sum.Write(p[:n])
	if d.size > d.want.Size {
		return n, d.wrongSize()
	}
	// The registry library verifies the stream at the end, too, but its error has fewer
	// details than that of verify.
	if err != nil && strings.HasPrefix(err.Error(), "error verifying ") {
		err = io.EOF
	}
	return n, err
}

// verify reads the rest of the stream, and compares size and digest. Content must not be used until
// verify has returned nil.
func (d *digestReader) verify() error {
	if d.size > d.want.Size {
		return d.wrongSize()
	}
	if _, err := io.Copy(io.Discard, d); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if d.size != d.want.Size {
		return d.wrongSize()
	}
	return d.wrongDigest()
}

func (d *digestReader) wrongSize() error {
	if d.size > d.want.Size {
		return fmt.Errorf("content has more than the %d bytes that it should", d.want.Size)
	}
	return fmt.Errorf("content ends after %d of %d bytes", d.size, d.want.Size)
}

func (d *digestReader) wrongDigest() error {
	got := v1.Hash{Algorithm: d.want.Digest.Algorithm, Hex: hex.EncodeToString(d.sum.Sum(nil))}
	if got == d.want.Digest {
		return nil
	}
	return fmt.Errorf("content has digest %s", got)
}

// checkManifest compares a manifest that was read with its descriptor.
func checkManifest(want v1.Descriptor, raw []byte) error {
	sum, err := v1.Hasher(want.Digest.Algorithm)
	if err != nil {
		return fmt.Errorf("manifest %s: %w", want.Digest, err)
	}
	if len(raw) > maxManifest {
		return sizeError(fmt.Sprintf("manifest %s has more than %s, which is the limit", want.Digest,
			inBytes(maxManifest)))
	}
	sum.Write(raw)
	whole := digestReader{want: want, sum: sum, size: int64(len(raw))}
	if err := whole.wrongDigest(); err != nil {
		return fmt.Errorf("manifest %s: %w", want.Digest, err)
	}
	return nil
}
