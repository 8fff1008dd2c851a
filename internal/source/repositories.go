package source

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// Repositories find images by their names. Each repository is opened once, and logs in once.
type Repositories struct {
	Options Options

	opened sync.Map // oci.Store by name.Repository
}

// Find returns an image and its store, which is the first of the image's mirrors that has it, or its own repository.
// A caller that is done with an image may close the store, which closes idle connections only.
func (r *Repositories) Find(ctx context.Context, image string) (oci.Store, v1.Descriptor, error) {
	var failed error
	for _, ref := range r.Options.Mirrors.Locations(image) {
		store, described, err := r.resolve(ctx, ref)
		if err == nil || ctx.Err() != nil {
			return store, described, err
		}
		if ref != image {
			err = fmt.Errorf("%s: %w", ref, err)
		}
		failed = errors.Join(failed, err)
	}
	return nil, v1.Descriptor{}, failed
}

func (r *Repositories) resolve(ctx context.Context, ref string) (oci.Store, v1.Descriptor, error) {
	location, err := oci.ParseRegistry(ref, r.Options.Insecure)
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	opened, isOpen := r.opened.Load(location.Repository)
	if !isOpen {
		store, err := oci.Open(ctx, location, oci.Options{Insecure: r.Options.Insecure})
		if err != nil {
			return nil, v1.Descriptor{}, err
		}
		opened, _ = r.opened.LoadOrStore(location.Repository, store)
	}
	described, err := opened.(oci.Store).Resolve(ctx, location.Identifier)
	return opened.(oci.Store), described, err
}
