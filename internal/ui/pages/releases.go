package pages

import (
	"context"
	"net/url"
)

// releases returns the page of all releases.
func (s *Site) releases(ctx context.Context, query url.Values) (*Content, error) {
	return nil, ErrNotFound
}
