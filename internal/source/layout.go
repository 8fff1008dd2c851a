package source

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

// A layoutStore is the folder of an OCI image layout.
type layoutStore string

func openLayout(ctx context.Context, found location, extractor *extractor) (*Release, error) {
	layout := layoutStore(found.path)
	raw, err := layout.readAll("index.json")
	if err != nil {
		return nil, fmt.Errorf("index.json of the layout: %w", err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("index.json of the layout: %w", err)
	}
	chosen, err := chooseImage(index.Manifests, found.choice, extractor.platform)
	if err != nil {
		return nil, err
	}
	extractor.store = layout
	manifest, err := extractor.findManifest(ctx, chosen)
	if err != nil {
		return nil, err
	}
	if err := layout.checkConfig(ctx, manifest.Config); err != nil {
		return nil, fmt.Errorf("config %s: %w", manifest.Config.Digest, err)
	}
	files, err := extractor.extractPayload(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return &Release{FS: files, Kind: Layout, Digest: chosen.Digest.String()}, nil
}

// chooseImage returns the image of a choice: ":tag", "@digest", or "" for the only image.
func chooseImage(images []v1.Descriptor, choice string, platform v1.Platform) (v1.Descriptor, error) {
	fitting := slices.DeleteFunc(slices.Clone(images), func(d v1.Descriptor) bool { return !matchesChoice(d, choice) })
	switch digests := distinctDigests(fitting); {
	case len(images) == 0:
		return v1.Descriptor{}, errors.New("the layout has no image")
	case len(digests) == 1:
		return fitting[0], nil
	case len(digests) == 0:
		return v1.Descriptor{}, fmt.Errorf("the layout has no image %q: it has %s", choice[1:], describeImages(images))
	case areOnePerPlatform(fitting):
		return choosePlatform(fitting, platform)
	default:
		return v1.Descriptor{}, fmt.Errorf("the layout has several images: add \":\" and a tag or \"@\" and a digest "+
			"to choose one of %s", describeImages(fitting))
	}
}

func matchesChoice(d v1.Descriptor, choice string) bool {
	name := d.Annotations[refName]
	switch {
	case choice == "":
		return true
	case choice[0] == '@':
		return d.Digest.String() == choice[1:]
	default: // some tools write the whole reference for a tag
		return name == choice[1:] || strings.HasSuffix(name, choice)
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

// checkConfig compares an image's config with its digest, although the config isn't
// used: a layout with any modified file is refused.
func (l layoutStore) checkConfig(ctx context.Context, described v1.Descriptor) error {
	from, err := l.blob(ctx, described)
	if err != nil {
		return err
	}
	defer from.Close()
	if described.Size > maxManifest {
		return sizeError("it has more than " + inBytes(maxManifest) + ", which is the limit")
	}
	checked, err := newDigestReader(interruptible(ctx, from), described)
	if err != nil {
		return err
	}
	return checked.verify()
}

func (l layoutStore) manifest(_ context.Context, described v1.Descriptor) ([]byte, error) {
	raw, err := l.readAll(blobPath(described.Digest))
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	return raw, nil
}

func (l layoutStore) blob(_ context.Context, described v1.Descriptor) (io.ReadCloser, error) {
	return l.open(blobPath(described.Digest))
}

func (l layoutStore) readAll(name string) ([]byte, error) {
	file, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(raw) > maxManifest {
		return nil, sizeError("it has more than " + inBytes(maxManifest) + ", which is the limit")
	}
	return raw, nil
}

// open opens a file of the layout. Links may lead out of the layout, as those of some build
// tools do: their targets are compared with the digest.
func (l layoutStore) open(name string) (*os.File, error) {
	full := filepath.Join(string(l), name)
	info, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &rewordedError{text: "the layout doesn't have it", err: err}
	case err != nil:
		return nil, withoutPath(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is not a file")
	}
	file, err := os.Open(full)
	if err != nil {
		return nil, withoutPath(err)
	}
	return file, nil
}

func blobPath(digest v1.Hash) string {
	return filepath.Join("blobs", digest.Algorithm, digest.Hex)
}
