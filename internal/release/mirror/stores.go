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
	whole  io.Closer // the layout that has them all; nil for registries
}

func newStores[S io.Closer](open func(string) (S, error)) *stores[S] {
	return &stores[S]{open: open, opened: map[string]S{}}
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

func (s *stores[S]) close() error {
	if s.whole != nil {
		return s.whole.Close()
	}
	var all error
	for _, store := range s.opened {
		all = errors.Join(all, store.Close())
	}
	return all
}

// openStores opens the source and the destination.
func (m *Mirror) openStores(ctx context.Context) (err error) {
	options := oci.Options{Insecure: m.options.Source.Insecure}
	m.reading = newStores(func(repository string) (oci.Store, error) {
		location, err := m.locate(repository)
		if err != nil {
			return nil, err
		}
		return oci.Open(ctx, location, options)
	})
	if m.from != "" {
		layout, err := oci.OpenLayout(m.from)
		if err != nil {
			return err
		}
		m.reading.whole = layout
		m.reading.open = func(repository string) (oci.Store, error) { return layout.Repository(repository), nil }
	}
	m.writing, err = m.openTargets(ctx)
	return err
}

// openTargets opens the destination.
func (m *Mirror) openTargets(ctx context.Context) (*stores[oci.Target], error) {
	if !m.isFolder {
		return newStores(func(repository string) (oci.Target, error) {
			location, err := m.locate(repository)
			if err != nil {
				return nil, err
			}
			return oci.Create(ctx, location, oci.Options{Insecure: m.options.Source.Insecure})
		}), nil
	}
	layout, err := oci.CreateLayout(m.to)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrDestination, m.to, err)
	}
	targets := newStores(func(repository string) (oci.Target, error) { return layout.Repository(repository), nil })
	targets.whole = layout
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
