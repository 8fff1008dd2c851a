package build

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/oci/copy"
)

// Push writes the release and the documents about it to an image in a registry, a layout or an archive, and returns
// where it is. The default tag is the version.
func (r *Release) Push(ctx context.Context, destination string, insecure bool) (written oci.Location, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", destination, err)
		}
	}()
	written, err = oci.ParseTarget(destination, r.Config.Version, insecure)
	if err != nil {
		return written, err
	}
	target, err := oci.Create(ctx, written, oci.Options{Insecure: insecure})
	if err != nil {
		return written, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	options := copy.Options{Tag: written.Identifier, Referrers: true}
	if _, err := copy.Copy(ctx, r.store, r.Root, target, options); err != nil {
		return written, err
	}
	return written, target.Commit(ctx)
}
