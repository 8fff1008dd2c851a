package pages

import (
	"context"

	"github.com/runlevel/runlevel/internal/ui/look"
)

// cluster returns the page on the ClusterVersion and the ClusterOperators.
func (s *Site) cluster(ctx context.Context) (*Content, error) { return nil, ErrNotFound }

func (v releaseView) version() look.Section { return look.Section{} }
