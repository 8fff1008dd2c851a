package pages

import (
	"context"
	"net/url"
)

// plan returns what an update from one kept version to another would change.
func (s *Site) plan(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
