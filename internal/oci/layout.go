package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with the tag of an image in a layout.
const refName = "org.opencontainers.image.ref.name"

// indexFile is the file with the index of a layout.
const indexFile = "index.json"

// LayoutFile is the file that marks a folder as an OCI image layout.
const LayoutFile = "oci-layout"

// IsLayout reports whether a path is the folder or archive of an OCI image layout.
func IsLayout(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	if !info.IsDir() {
		opened, err := openArchive(path)
		return err == nil && opened.close() == nil
	}
	info, err = os.Stat(filepath.Join(path, LayoutFile))
	return err == nil && info.Mode().IsRegular()
}

// A Layout is an OCI image layout, in a folder or an archive. Changes are visible to others after Commit.
type Layout struct {
	files      layoutFiles
	platform   v1.Platform
	repository string // whose images it has; "" for all
	draft      *draft
}

// layoutFiles are the files of a layout.
type layoutFiles interface {
	open(name string) (io.ReadSeekCloser, error)
	// begin waits until no other process writes.
	begin(ctx context.Context) (*os.Root, error)
	// putBlob writes a file below blobs, and compares it with its digest.
	putBlob(ctx context.Context, described v1.Descriptor, open func(offset int64) (io.ReadCloser, error)) error
	// commit replaces index.json, unless the new one is nil, and removes what is only needed before it.
	commit(ctx context.Context, index []byte) error
	close() error
}

// OpenLayout opens a layout in a folder or archive.
func OpenLayout(path string) (*Layout, error) {
	layout := &Layout{draft: newDraft()}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, WithoutPath(err)
	case info.IsDir() && !IsLayout(path):
		return nil, fmt.Errorf("it is not an OCI image layout: it has no file %s", LayoutFile)
	case info.IsDir():
		layout.files = &folder{path: path}
		return layout, nil
	}
	layout.files, err = openArchive(path)
	return layout, err
}

// relatedTag matches tags that name a digest, as those of cosign's signatures do.
var relatedTag = regexp.MustCompile(`(^|:)sha256-[0-9a-f]{64}`)

// Repository returns the part of a layout with the images of one repository. In the index of the layout, their tags
// begin with its name.
func (l *Layout) Repository(name string) *Layout {
	part := *l
	part.repository = name
	return &part
}

// Resolve implements Store.
func (l *Layout) Resolve(ctx context.Context, identifier string) (v1.Descriptor, error) {
	images, err := l.images()
	if err != nil {
		return v1.Descriptor{}, err
	}
	if identifier == "" && len(distinctDigests(images)) > 1 {
		images = slices.DeleteFunc(slices.Clone(images), func(d v1.Descriptor) bool {
			// a signature, for example
			return l.draft.referrer(ctx, l, d) != nil || relatedTag.MatchString(d.Annotations[refName])
		})
	}
	if l.repository == "" {
		return chooseImage(images, identifier, l.platform)
	}
	for _, d := range images {
		if d.Digest.String() == identifier || d.Annotations[refName] == l.repository+":"+identifier {
			return d, nil
		}
	}
	return v1.Descriptor{}, &RewordedError{Text: fmt.Sprintf("the layout has no image %s %s", l.repository, identifier),
		Err: ErrNotFound}
}

// images returns the entries of the index, with those of the draft. Callers don't change them.
func (l *Layout) images() ([]v1.Descriptor, error) {
	d := l.draft
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.index == nil {
		if d.index, err = l.readIndex(); err != nil {
			return nil, err
		}
	}
	if d.images == nil {
		d.images = d.merge()
	}
	if l.repository == "" {
		return d.images, nil
	}
	return slices.DeleteFunc(slices.Clone(d.images), func(d v1.Descriptor) bool {
		rest, isOfRepository := strings.CutPrefix(d.Annotations[refName], l.repository)
		return !isOfRepository || !strings.HasPrefix(rest, ":") && !strings.HasPrefix(rest, "@")
	}), nil
}

func (l *Layout) readIndex() (*v1.IndexManifest, error) {
	raw, err := readAll(l.files, indexFile)
	if errors.Is(err, ErrNotFound) && l.draft.isChanged.Load() {
		return &v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}, nil
	}
	var index v1.IndexManifest
	if err == nil {
		err = json.Unmarshal(raw, &index)
	}
	if err != nil {
		return nil, fmt.Errorf("index.json of the layout: %w", err)
	}
	return &index, nil
}

// chooseImage returns the image of a choice: a tag, a digest, or "" for the only image.
func chooseImage(images []v1.Descriptor, choice string, platform v1.Platform) (v1.Descriptor, error) {
	fitting := slices.DeleteFunc(slices.Clone(images), func(d v1.Descriptor) bool {
		return choice != "" && d.Digest.String() != choice && d.Annotations[refName] != choice
	})
	if len(fitting) == 0 { // some tools write the whole reference for a tag
		fitting = slices.DeleteFunc(slices.Clone(images), func(d v1.Descriptor) bool {
			return !strings.HasSuffix(d.Annotations[refName], ":"+choice)
		})
	}
	switch digests := distinctDigests(fitting); {
	case len(images) == 0:
		return v1.Descriptor{}, errors.New("the layout has no image")
	case len(digests) == 1:
		return fitting[0], nil
	case len(digests) == 0:
		return v1.Descriptor{}, &RewordedError{
			Text: fmt.Sprintf("the layout has no image %q: it has %s", choice, describeImages(images)),
			Err:  ErrNotFound,
		}
	case platform.OS != "" && areOnePerPlatform(fitting):
		return ChoosePlatform(fitting, platform)
	default:
		return v1.Descriptor{}, fmt.Errorf("the layout has several images: add \":\" and a tag or \"@\" and a digest "+
			"to choose one of %s", describeImages(fitting))
	}
}

// distinctDigests returns the digests of images, each once: one image may have several tags.
func distinctDigests(images []v1.Descriptor) []string {
	var digests []string
	for _, d := range images {
		digests = append(digests, d.Digest.String())
	}
	slices.Sort(digests)
	return slices.Compact(digests)
}

// areOnePerPlatform reports whether images are variants of one image for several
// platforms: some tools list those next to each other, without an index.
func areOnePerPlatform(images []v1.Descriptor) bool {
	return !slices.ContainsFunc(images, func(d v1.Descriptor) bool {
		return d.Platform == nil || d.Annotations[refName] != images[0].Annotations[refName]
	})
}

func describeImages(images []v1.Descriptor) string {
	var names []string
	for _, d := range images {
		name := d.Digest.String()
		if tag := d.Annotations[refName]; tag != "" {
			name = fmt.Sprintf("%s (%s)", tag, name)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Manifest implements Store.
func (l *Layout) Manifest(_ context.Context, described v1.Descriptor) ([]byte, error) {
	raw, err := readAll(l.files, blobPath(described.Digest))
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	return raw, CheckManifest(described, raw)
}

// Blob implements Store.
func (l *Layout) Blob(_ context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error) {
	file, err := l.files.open(blobPath(described.Digest))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(WithoutPath(err), file.Close())
	}
	return file, nil
}

// Referrers implements Store. The index of a layout lists them.
func (l *Layout) Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	images, err := l.images()
	if err != nil {
		return nil, err
	}
	var referrers []v1.Descriptor
	for _, described := range images {
		found := l.draft.referrer(ctx, l, described)
		isKnown := slices.ContainsFunc(referrers, func(d v1.Descriptor) bool { return d.Digest == described.Digest })
		if found != nil && found.subject == digest && !isKnown {
			referrers = append(referrers, found.described)
		}
	}
	return referrers, ctx.Err()
}

// Close implements Store.
func (l *Layout) Close() error { return l.files.close() }

// readAll reads a small file.
func readAll(files layoutFiles, name string) ([]byte, error) {
	file, err := files.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, MaxManifest+1))
	if err != nil {
		return nil, WithoutPath(err)
	}
	if len(raw) > MaxManifest {
		return nil, SizeError("it has more than " + InBytes(MaxManifest) + ", which is the limit")
	}
	return raw, nil
}

func blobPath(digest v1.Hash) string {
	return path.Join("blobs", digest.Algorithm, digest.Hex)
}

// ChoosePlatform returns the image of an index for a platform.
func ChoosePlatform(images []v1.Descriptor, wanted v1.Platform) (v1.Descriptor, error) {
	var available []string
	for _, d := range images {
		switch {
		case d.Platform == nil && len(images) == 1:
			return d, nil
		case d.Platform == nil || d.Platform.OS == "" || d.Platform.OS == "unknown":
			continue // an attestation, for example
		case d.Platform.Satisfies(wanted):
			return d, nil
		}
		available = append(available, d.Platform.String())
	}
	slices.Sort(available)
	if len(available) == 0 {
		return v1.Descriptor{}, fmt.Errorf("no image for platform %s, or for any other platform", wanted)
	}
	return v1.Descriptor{}, fmt.Errorf("no image for platform %s, only for %s", wanted,
		strings.Join(slices.Compact(available), ", "))
}
