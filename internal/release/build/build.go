// Package build makes a release: an image in the format of OpenShift's releases with the manifests of components, the
// images that they run, by digest, and the version of the release. The same input has the same digest on each machine.
//
// It neither lints nor rehearses a release, and does not sign it. Until Push, nothing is written.
//
// ReadConfig reads release.yaml, and Build builds what it describes. Start with Build.
package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/pkg/payload"
)

// Options are the options of Build.
type Options struct {
	// Lock has what another build has resolved. With it, no registry is read, except for the layers of a base.
	Lock *Lock
	// Base is the image that the release is put on, such as the operator's; "" for none.
	Base string
	// Platforms are the platforms of the release; empty for those of the base, or linux/amd64 without one.
	Platforms []v1.Platform
	// Insecure allows registries with plain http, or with a certificate that isn't trusted.
	Insecure bool
	// Time is the time of the release and its files; zero for that of the newest input.
	Time time.Time
	// Builder is the version of this program, for the documents about the build.
	Builder string
}

// A Release is a release that has been built. It must be closed.
type Release struct {
	Config *Config
	Lock   *Lock // resolved images

	Files    fs.FS
	Payload  *payload.Payload  // the manifests, with their text
	Problems []payload.Problem // problems of manifests
	Ignored  []string          // files of components that are not manifests

	Created   time.Time
	Root      v1.Descriptor   // the image, or the index of images for several platforms
	Documents []v1.Descriptor // its SBOM and provenance: referrers of the image
	Size      int64           // bytes of the image, or of the largest one of several platforms

	sources map[string]string // paths of manifests in the components, by their paths in the release
	store   *memoryStore
}

// Close frees the resources of a release.
func (r *Release) Close() error { return r.store.Close() }

// SourceOf returns the path in a component of a file of the release; other files keep their path.
func (r *Release) SourceOf(file string) string {
	if source := r.sources[file]; source != "" {
		return source
	}
	return file
}

// maxParallel is the number of images and components that are read at once.
const maxParallel = 8

// A builder has the parts of an unfinished release.
type builder struct {
	config     *Config
	options    Options
	components []*componentFiles
	images     map[string]ResolvedImage // images of image-references
	files      []txtar.File
	sources    map[string]string // paths of the files in the components, by their names
	time       time.Time
}

// Build builds a release. Its error has a line for each problem.
func Build(ctx context.Context, config *Config, options Options) (*Release, error) {
	b := &builder{config: config, options: options, images: map[string]ResolvedImage{}, sources: map[string]string{},
		time: options.Time}
	if err := errors.Join(b.read(ctx)...); err != nil {
		return nil, err
	}
	release := &Release{
		Config: config, Lock: b.lock(), Created: b.time, sources: b.sources,
		store: &memoryStore{parts: map[v1.Hash][]byte{}},
	}
	for _, read := range b.components {
		for _, name := range read.ignored {
			release.Ignored = append(release.Ignored, read.pathOf(name))
		}
	}
	if err := errors.Join(b.rewriteAll()...); err != nil {
		return nil, err
	}
	if err := b.parse(ctx, release); err != nil {
		return nil, err
	}
	err := b.openBase(ctx, release)
	if err == nil {
		err = b.pack(ctx, release)
	}
	if err != nil {
		return nil, errors.Join(err, release.Close())
	}
	return release, nil
}

// read reads the components and resolves the images, in parallel, and returns the problems of all.
func (b *builder) read(ctx context.Context) []error {
	names := sortedKeys(b.config.Images)
	resolved := make([]ResolvedImage, len(names))
	failed := make([]error, len(names)+len(b.config.Components))
	b.components = make([]*componentFiles, len(b.config.Components))
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i, name := range names {
		group.Go(func() (err error) {
			spec := b.config.Images[name]
			if b.options.Lock != nil {
				locked := b.options.Lock.Images[name]
				resolved[i], err = locked.locked(spec)
			} else {
				resolved[i], _, err = b.resolve(ctx, spec)
			}
			if err != nil {
				failed[i] = b.config.problem([]string{"images", name}, "image %s: %s: %w", name, spec, err)
			}
			return nil
		})
	}
	for i, entry := range b.config.Components {
		group.Go(func() (err error) {
			if b.components[i], err = b.readComponent(ctx, entry); err != nil {
				failed[len(names)+i] = b.config.problem([]string{"components", fmt.Sprint(i)}, "component %s: %w",
					entry.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait() // all errors are in failed
	if ctx.Err() != nil {
		return []error{context.Cause(ctx)}
	}
	if slices.ContainsFunc(failed, func(err error) bool { return err != nil }) {
		return failed
	}
	for i, name := range names {
		b.images[name] = resolved[i]
	}
	return b.takeInputs()
}

// takeInputs adds the images of components, and sets the time of the release.
func (b *builder) takeInputs() []error {
	var problems []error
	newest := b.config.changed
	for i, read := range b.components {
		if read.changed.After(newest) {
			newest = read.changed
		}
		if read.image == nil {
			continue
		}
		if other, isSet := b.images[read.Name]; isSet && other.Image != read.image.Image {
			problems = append(problems, b.config.problem([]string{"components", fmt.Sprint(i)},
				"component %s is the image %s, and images.%[1]s is another one, %[3]s: name the same", read.Name,
				read.Source, other.From))
		}
		b.images[read.Name] = *read.image
	}
	if b.time.IsZero() {
		b.time = newest
	}
	b.time = b.time.UTC().Truncate(time.Second)
	return problems
}

// lock returns the resolved images. A base is added when it has been read.
func (b *builder) lock() *Lock {
	lock := &Lock{Images: map[string]ResolvedImage{}, Components: map[string]LockedComponent{}}
	for name := range b.config.Images {
		lock.Images[name] = b.images[name]
	}
	for _, read := range b.components {
		if read.image == nil {
			continue
		}
		locked := LockedComponent{ResolvedImage: *read.image, Files: map[string]string{}}
		for name, text := range read.files {
			locked.Files[name] = string(text)
		}
		lock.Components[read.Name] = locked
	}
	return lock
}

// parse reads the manifests of the release, as every reader of the release does, and checks their images.
func (b *builder) parse(ctx context.Context, release *Release) error {
	for {
		var err error
		if release.Files, err = b.fileSystem(); err != nil {
			return err
		}
		options := payload.Options{Name: b.config.Name, KeepText: true}
		if release.Payload, release.Problems, err = payload.Parse(ctx, release.Files, options); err != nil {
			return err
		}
		added, problems := b.checkImages(release)
		if len(problems) > 0 {
			return errors.Join(problems...)
		}
		if !added {
			return nil
		}
	}
}

// fileSystem returns the files of the release.
func (b *builder) fileSystem() (fs.FS, error) {
	entries, err := b.entries()
	if err != nil {
		return nil, err
	}
	return txtar.FS(&txtar.Archive{Files: entries})
}
