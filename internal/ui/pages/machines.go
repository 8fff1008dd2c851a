package pages

import (
	"context"
	"net/url"
)

// machines returns the page on the machines of the cluster.
func (s *Site) machines(ctx context.Context, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
