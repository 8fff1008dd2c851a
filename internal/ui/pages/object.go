package pages

import (
	"context"
	"net/url"
)

// object returns the page on an object.
func (s *Site) object(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
