package pages

import "context"

// cluster returns the page on the ClusterVersion and the ClusterOperators.
func (s *Site) cluster(ctx context.Context) (*Content, error) { return nil, ErrNotFound }
