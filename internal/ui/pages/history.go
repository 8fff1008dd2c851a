package pages

import (
	"context"
	"net/url"
)

// history returns the versions of a release.
func (s *Site) history(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
