package mirror

import (
	"context"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// find returns an image of the source, and its store.
func (m *Mirror) find(ctx context.Context, image reference) (oci.Store, v1.Descriptor, error) {
	if m.fromFolder == nil {
		return m.reading.Find(ctx, image.String())
	}
	store := m.fromFolder.Repository(image.repository)
	described, err := store.Resolve(ctx, image.identifier)
	return store, described, err
}

// target returns the repository of an image at the destination.
func (m *Mirror) target(ctx context.Context, image reference) (oci.Target, error) {
	if m.toFolder != nil {
		return m.toFolder.Repository(image.repository), nil
	}
	repository := m.nameAt(image)
	if opened, isOpen := m.writing.Load(repository); isOpen {
		return opened.(oci.Target), nil
	}
	location, err := oci.ParseRegistry(repository+":latest", m.options.Source.Insecure)
	if err != nil {
		return nil, err
	}
	created, err := oci.Create(ctx, location, oci.Options{Insecure: m.options.Source.Insecure})
	if err != nil {
		return nil, err
	}
	opened, _ := m.writing.LoadOrStore(repository, created)
	return opened.(oci.Target), nil
}

// rest closes the idle connections of stores: a release may have images in hundreds of repositories.
func rest(stores ...oci.Store) {
	for _, store := range stores {
		if _, isFolder := store.(*oci.Layout); !isFolder {
			_ = store.Close()
		}
	}
}
