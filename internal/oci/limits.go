package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// MaxManifest is the maximum size of a manifest, an index or a config in bytes.
const MaxManifest = 8 * mib

// A SizeError is the error of content over a limit. Reading stops then, without a search for other errors.
type SizeError string

func (e SizeError) Error() string { return string(e) }

// IsSizeError reports whether an error is a SizeError.
func IsSizeError(err error) bool {
	var over SizeError
	return errors.As(err, &over)
}

// Interruptible returns a reader that fails when the context ends.
func Interruptible(ctx context.Context, reader io.Reader) io.Reader {
	return ReaderFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return reader.Read(p)
	})
}

// A ReaderFunc is a function that is a reader.
type ReaderFunc func([]byte) (int, error)

func (r ReaderFunc) Read(p []byte) (int, error) { return r(p) }

// InBytes returns a size with the largest exact unit.
func InBytes(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if size := int64(gib) >> (10 * i); n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
