package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/runlevel/runlevel/internal/oci"
)

// stores opens the store of each repository once.
type stores[S io.Closer] struct {
	open func(repository string) (S, error)

	mu     sync.Mutex
	opened map[string]S
}

// get returns the store of a repository.
func (s *stores[S]) get(repository string) (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if store, isOpen := s.opened[repository]; isOpen {
		return store, nil
	}
	store, err := s.open(repository)
	if err == nil {
		s.opened[repository] = store
	}
	return store, err
}

func (s *stores[S]) close() (err error) {
	for _, store := range s.opened {
		err = errors.Join(err, store.Close())
	}
	return err
}

// openStores opens the source and the destination.
func (m *Mirror) openStores(ctx context.Context) (err error) {
	m.reading = &stores[oci.Store]{opened: map[string]oci.Store{}}
	m.reading.open = func(repository string) (oci.Store, error) {
		location, err := m.locate(repository)
		if err != nil {
			return nil, err
		}
		return oci.Open(ctx, location, oci.Options{Insecure: m.options.Source.Insecure})
	}
	if m.from != "" {
		layout, err := oci.OpenLayout(m.from)
		if err != nil {
			return err
		}
		m.reading.open = func(repository string) (oci.Store, error) { return layout.Repository(repository), nil }
	}
	m.writing, err = m.openTargets(ctx)
	return err
}

// openTargets opens the destination.
func (m *Mirror) openTargets(ctx context.Context) (*stores[oci.Target], error) {
	targets := &stores[oci.Target]{opened: map[string]oci.Target{}}
	targets.open = func(repository string) (oci.Target, error) {
		location, err := m.locate(repository)
		if err != nil {
			return nil, err
		}
		return oci.Create(ctx, location, oci.Options{Insecure: m.options.Source.Insecure})
	}
	if !m.isFolder {
		return targets, nil
	}
	layout, err := oci.CreateLayout(ctx, m.to)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrDestination, m.to, err)
	}
	targets.open = func(repository string) (oci.Target, error) { return layout.Repository(repository), nil }
	return targets, nil
}

// locate returns the location of a repository in a registry.
func (m *Mirror) locate(repository string) (oci.Location, error) {
	var options []name.Option
	if m.options.Source.Insecure {
		options = append(options, name.Insecure)
	}
	parsed, err := name.NewRepository(repository, options...)
	return oci.Location{Repository: parsed}, err
}
