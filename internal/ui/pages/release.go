package pages

import (
	"context"
	"net/url"
)

// release returns the first page on a release: its graph, progress, waits, deletes and gate.
func (s *Site) release(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
