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

func (c *digestReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.size += int64(n)
	c.sum.Write(p[:n])
	if c.size > c.want.Size {
		return n, c.wrongSize()
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
func (c *digestReader) verify() error {
	if c.size > c.want.Size {
		return c.wrongSize()
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if c.size != c.want.Size {
		return c.wrongSize()
	}
	return c.wrongDigest()
}

func (c *digestReader) wrongSize() error {
	if c.size > c.want.Size {
		return fmt.Errorf("content has more than the %d bytes that it should", c.want.Size)
	}
	return fmt.Errorf("content ends after %d of %d bytes", c.size, c.want.Size)
}

func (c *digestReader) wrongDigest() error {
	got := v1.Hash{Algorithm: c.want.Digest.Algorithm, Hex: hex.EncodeToString(c.sum.Sum(nil))}
	if got == c.want.Digest {
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
