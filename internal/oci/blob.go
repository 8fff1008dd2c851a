package oci

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A blobReader reads a blob on one connection after the other.
type blobReader struct {
	store     *registryStore
	ctx       context.Context
	cancel    context.CancelFunc
	described v1.Descriptor
	offset    int64
	attempts  retrier

	mu      sync.Mutex    // uploads by HTTP/2 close a reader while it reads
	current io.ReadCloser // nil without a connection
}

// Blob implements Store. When the connection drops or stalls, the reader continues on another one.
func (r *registryStore) Blob(ctx context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error) {
	b := &blobReader{store: r, described: described, offset: offset}
	b.attempts = retrier{limit: r.attempts.Load(), furthest: offset}
	b.ctx, b.cancel = context.WithCancel(ctx)
	if err := retry(ctx, r.attempts.Load(), b.open); err != nil {
		b.cancel()
		return nil, err
	}
	return b, nil
}

// open opens a connection. If the registry ignores the offset, or answers with another part, it reads the blob from its
// beginning.
func (b *blobReader) open() error {
	request, err := http.NewRequestWithContext(b.ctx, http.MethodGet,
		b.store.address("blobs/%s", b.described.Digest), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", acceptBlob)
	part := fmt.Sprintf("%d-%d", b.offset, b.described.Size-1)
	if b.offset > 0 && b.offset < b.described.Size {
		request.Header.Set("Range", "bytes="+part)
	}
	response, err := b.store.do(request,
		http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable)
	if err != nil {
		return err
	}
	isPart := response.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(response.Header.Get("Content-Range"), "bytes "+part+"/")
	if response.StatusCode != http.StatusOK && !isPart {
		response.Body.Close()
		request.Header.Del("Range")
		if response, err = b.store.do(request, http.StatusOK); err != nil {
			return err
		}
	}
	if !isPart {
		if _, err := io.CopyN(io.Discard, response.Body, b.offset); err != nil {
			response.Body.Close()
			return b.store.classify(err, nil)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = response.Body
	return nil
}

// Read implements io.Reader.
func (b *blobReader) Read(p []byte) (int, error) {
	for {
		n, err := b.readOnce(p)
		b.offset += int64(n)
		switch {
		case n > 0, err == nil:
			return n, nil
		case err == io.EOF:
			return 0, err
		}
		b.attempts.reach(b.offset)
		_ = b.drop() // of a connection that has failed
		if err := b.attempts.pause(b.ctx, err); err != nil {
			return 0, err
		}
	}
}

func (b *blobReader) readOnce(p []byte) (int, error) {
	b.mu.Lock()
	current := b.current
	b.mu.Unlock()
	if current == nil {
		return 0, b.open()
	}
	n, err := current.Read(p)
	switch isWhole := b.offset+int64(n) >= b.described.Size; {
	case err == nil, err == io.EOF && isWhole:
		return n, err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, b.store.classify(err, nil)
}

func (b *blobReader) drop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil {
		return nil
	}
	defer func() { b.current = nil }()
	return b.current.Close()
}

// Close implements io.Closer.
func (b *blobReader) Close() error {
	b.cancel()
	return b.drop()
}
