package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// refName is the annotation with the tag of an image in a layout.
const refName = "org.opencontainers.image.ref.name"

// LayoutFile is the file that marks a folder as an OCI image layout.
const LayoutFile = "oci-layout"

// IsLayout reports whether a folder is an OCI image layout.
func IsLayout(path string) bool {
	if path == "" {
		return false
	}
	info, err := os.Stat(filepath.Join(path, LayoutFile))
	return err == nil && info.Mode().IsRegular()
}

// A layoutStore is the folder of an OCI image layout.
type layoutStore struct {
	path     string
	platform v1.Platform
}

// Resolve implements Store.
func (l *layoutStore) Resolve(_ context.Context, identifier string) (v1.Descriptor, error) {
	index, err := l.index()
	if err != nil {
		return v1.Descriptor{}, err
	}
	return chooseImage(index.Manifests, identifier, l.platform)
}

func (l *layoutStore) index() (*v1.IndexManifest, error) {
	raw, err := l.readAll("index.json")
	if err != nil {
		return nil, fmt.Errorf("index.json of the layout: %w", err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("index.json of the layout: %w", err)
	}
	return &index, nil
}

// chooseImage returns the image of a choice: a tag, a digest, or "" for the only image.
func chooseImage(images []v1.Descriptor, choice string, platform v1.Platform) (v1.Descriptor, error) {
	fitting := slices.DeleteFunc(slices.Clone(images), func(d v1.Descriptor) bool { return !matchesChoice(d, choice) })
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
	case areOnePerPlatform(fitting):
		return ChoosePlatform(fitting, platform)
	default:
		return v1.Descriptor{}, fmt.Errorf("the layout has several images: add \":\" and a tag or \"@\" and a digest "+
			"to choose one of %s", describeImages(fitting))
	}
}

func matchesChoice(d v1.Descriptor, choice string) bool {
	name := d.Annotations[refName]
	// some tools write the whole reference for a tag
	return choice == "" || d.Digest.String() == choice || name == choice || strings.HasSuffix(name, ":"+choice)
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
func (l *layoutStore) Manifest(_ context.Context, described v1.Descriptor) ([]byte, error) {
	raw, err := l.readAll(blobPath(described.Digest))
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	return raw, CheckManifest(described, raw)
}

// Blob implements Store.
func (l *layoutStore) Blob(_ context.Context, described v1.Descriptor, offset int64) (io.ReadCloser, error) {
	file, err := l.open(blobPath(described.Digest))
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(WithoutPath(err), file.Close())
	}
	return file, nil
}

// Referrers implements Store. The index of a layout lists them.
func (l *layoutStore) Referrers(ctx context.Context, digest v1.Hash) ([]v1.Descriptor, error) {
	index, err := l.index()
	if err != nil {
		return nil, err
	}
	var referrers []v1.Descriptor
	for _, described := range index.Manifests {
		raw, err := l.Manifest(ctx, described)
		if err != nil {
			return nil, err
		}
		var manifest struct {
			Subject *v1.Descriptor `json:"subject"`
		}
		if err := json.Unmarshal(raw, &manifest); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
		}
		if manifest.Subject != nil && manifest.Subject.Digest == digest {
			referrers = append(referrers, described)
		}
	}
	return referrers, nil
}

// Close implements Store.
func (*layoutStore) Close() error { return nil }

func (l *layoutStore) readAll(name string) ([]byte, error) {
	file, err := l.open(name)
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

// open opens a file of the layout. Links may lead out of the layout, as those of some build
// tools do: their targets are compared with the digest.
func (l *layoutStore) open(name string) (*os.File, error) {
	full := filepath.Join(l.path, name)
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &RewordedError{Text: "the layout doesn't have it", Err: errors.Join(ErrNotFound, err)}
	case err != nil:
		return nil, WithoutPath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a file")
	}
	file, err := os.Open(full)
	if err != nil {
		return nil, WithoutPath(err)
	}
	return file, nil
}

func blobPath(digest v1.Hash) string {
	return filepath.Join("blobs", digest.Algorithm, digest.Hex)
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
