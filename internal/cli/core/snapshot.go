package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlevel/runlevel/internal/session/snapshot"
)

// TakeSnapshot reads the objects and the record of a release from the cluster of the flags.
func TakeSnapshot(ctx context.Context, f *ClusterFlags, name string) (*snapshot.Snapshot, error) {
	c, err := f.Connect(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := snapshot.Take(ctx, c, name, f.Namespace)
	if errors.Is(err, snapshot.ErrUnknown) {
		return nil, fmt.Errorf("%w: \"runlevel list -A\" shows the releases", err)
	}
	return taken, err
}
