package oci

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A DigestReader compares a stream with the size and digest of its descriptor. It returns no more than that size, and
// io.EOF only after the right content.
type DigestReader struct {
	from io.Reader
	want v1.Descriptor
	sum  hash.Hash
	size int64
}

func NewDigestReader(reader io.Reader, want v1.Descriptor) (*DigestReader, error) {
	sum, err := v1.Hasher(want.Digest.Algorithm)
	if err != nil {
		return nil, err
	}
	return &DigestReader{from: reader, want: want, sum: sum}, nil
}

func (d *DigestReader) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	left := d.want.Size - d.size
	d.size += int64(n)
	if d.size > d.want.Size {
		n, err = int(max(left, 0)), wrongSize(d.size, d.want.Size)
	}
	d.sum.Write(p[:n])
	if err == io.EOF && d.size < d.want.Size {
		err = wrongSize(d.size, d.want.Size)
	} else if err == io.EOF {
		err = cmp.Or(d.wrongDigest(), err)
	}
	return n, err
}

// Verify reads the rest of the stream. Content must not be used before Verify has returned nil, or Read io.EOF.
func (d *DigestReader) Verify() error {
	_, err := io.Copy(io.Discard, d)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return wrongSize(d.size, d.want.Size)
	}
	return err
}

// A wrongContentError is the error of content that doesn't have the size or digest of its descriptor.
type wrongContentError string

func (w wrongContentError) Error() string { return string(w) }

// IsWrong reports whether content does not have the size or digest of its descriptor.
func IsWrong(err error) bool { return errors.As(err, new(wrongContentError)) }

func wrongSize(got, want int64) error {
	if got > want {
		return wrongContentError(fmt.Sprintf("content has more than the %d bytes that it should", want))
	}
	return wrongContentError(fmt.Sprintf("content ends after %d of %d bytes", got, want))
}

func (d *DigestReader) wrongDigest() error {
	got := v1.Hash{Algorithm: d.want.Digest.Algorithm, Hex: hex.EncodeToString(d.sum.Sum(nil))}
	if got == d.want.Digest {
		return nil
	}
	return wrongContentError(fmt.Sprintf("content has digest %s", got))
}

// CheckManifest compares a manifest that was read with its descriptor.
func CheckManifest(want v1.Descriptor, raw []byte) error {
	if len(raw) > MaxManifest {
		return SizeError(fmt.Sprintf("manifest %s has more than %s, which is the limit", want.Digest,
			InBytes(MaxManifest)))
	}
	want.Size = int64(len(raw)) // some descriptors have none
	whole, err := NewDigestReader(bytes.NewReader(raw), want)
	if err == nil {
		err = whole.Verify()
	}
	if err != nil {
		return fmt.Errorf("manifest %s: %w", want.Digest, err)
	}
	return nil
}
