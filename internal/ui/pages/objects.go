package pages

import (
	"context"
	"net/url"
)

// objects returns the objects of a release, by state, kind and words of a search.
func (s *Site) objects(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
