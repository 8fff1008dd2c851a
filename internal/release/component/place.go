package component

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Placement contains the manifests of a component, and the release that Place puts them into.
type Placement struct {
	Names     []string // see Options
	Component string   // the source of its manifests
	Into      string   // the source of the release
	Options   loader.Options
	Released  *loader.Options // options for the release without changes; nil if not needed
	// IsUpdate keeps the capabilities enabled that the release as it is has, unless Options names another one.
	IsUpdate bool
}

// A PlacedComponent is a component whose manifests have been put into a release.
type PlacedComponent struct {
	*Build
	Released                      *payload.Payload // the release as it is; nil if not requested
	Before, After                 *payload.Payload // the builds without and with the manifests of the component
	BeforeProblems, AfterProblems []payload.Problem
}

// Place puts a component into a release, and reads the result as far as it can be read. A release with problems as a
// whole is a loader.RefusedError.
func Place(ctx context.Context, p Placement) (_ *PlacedComponent, err error) {
	own, err := source.Open(ctx, p.Component, p.Options.Source)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	release, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release.Close()) }()
	build, err := Into(release.FS, own.FS, Options{Names: p.Names, Version: p.Options.Payload.Version})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Component, err)
	}
	placed := &PlacedComponent{Build: build}
	if p.Released != nil {
		if placed.Released, _, err = p.readWhole(ctx, release, *p.Released); err != nil {
			return nil, err
		}
	}
	if p.IsUpdate {
		p.Options.Before = cmp.Or(p.Options.Before, placed.Released)
	}
	if placed.Before, placed.BeforeProblems, err = p.readWhole(ctx,
		&source.Release{FS: build.Before, Image: release.Image, Values: release.Values}, p.Options); err != nil {
		return nil, err
	}
	placed.After, placed.AfterProblems, err = loader.ParseOpened(ctx,
		&source.Release{FS: build.FS, Image: release.Image, Values: release.Values}, p.Options)
	placed.AfterProblems = append(placed.AfterProblems, build.Problems...)
	return placed, err
}

// open opens the release.
func (p *Placement) open(ctx context.Context) (*source.Release, error) {
	release, err := source.Open(ctx, p.Into, p.Options.Source)
	if err == nil || ctx.Err() != nil {
		return release, err
	}
	if _, onDisk := os.Stat(p.Into); onDisk == nil {
		return nil, err
	}
	return nil,
		fmt.Errorf("%w; where it can't be pulled, a copy on disk will do: an OCI layout, an archive or a folder", err)
}

// readWhole reads a release, and refuses one that has problems as a whole. Those in the files of one component are
// returned.
func (p *Placement) readWhole(ctx context.Context, release *source.Release,
	options loader.Options) (*payload.Payload, []payload.Problem, error) {
	read, problems, err := loader.ParseOpened(ctx, release, options)
	if err != nil {
		return nil, nil, loader.Named(p.Into, err)
	}
	ofWhole := problems
	if len(read.All()) > 0 {
		ofWhole = slices.DeleteFunc(slices.Clone(problems), func(p payload.Problem) bool {
			return p.Cause != payload.Mislabelled
		})
	}
	if err := payload.Refuse(ofWhole); err != nil {
		return nil, nil, &loader.RefusedError{Source: p.Into, Problems: err}
	}
	return read, problems, nil
}

// OwnProblems separates the problems of the component's files, and those that it causes in others, from the other
// problems of the release. The former have the file names of the component's folder.
func (p *PlacedComponent) OwnProblems() (own, others []payload.Problem) {
	known := make([]payload.Problem, 0, len(p.BeforeProblems))
	for _, problem := range p.BeforeProblems {
		known = append(known, problem.Anywhere())
	}
	for _, problem := range p.AfterProblems {
		if file, isOwn := p.Own(problem.File); isOwn {
			problem.File = file
			own = append(own, problem)
		} else if !slices.Contains(known, problem.Anywhere()) {
			own = append(own, problem) // caused by the component
		} else {
			others = append(others, problem)
		}
	}
	return own, others
}

// PathOf returns the path of a file of a release in the component's folder; the path of a file of another component is
// returned unchanged.
func (p *PlacedComponent) PathOf(folder, file string) string {
	if _, isOwn := p.Own(file); !isOwn && !p.Had(file) {
		return file
	}
	return filepath.ToSlash(filepath.Join(folder, p.Home(file)))
}
