package build

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/pkg/payload"
)

// operatorLabel marks the images of components, whose folder manifests/ becomes part of a release.
const operatorLabel = "io.openshift.release.operator"

// sourceLabels are the labels of images that become annotations in image-references.
var sourceLabels = []string{
	"io.openshift.build.commit.id",
	"io.openshift.build.commit.ref",
	"io.openshift.build.source-location",
	"io.openshift.build.versions",
	"io.openshift.build.version-display-names",
}

// A ResolvedImage is an image by digest, with its annotations in image-references.
type ResolvedImage struct {
	From        string            `json:"from"`  // as release.yaml has it
	Image       string            `json:"image"` // by digest
	Annotations map[string]string `json:"annotations,omitempty"`
}

// checkImage returns an error for a text that does not name an image in a registry.
func checkImage(spec string) error {
	_, err := oci.ParseRegistry(spec, false)
	return err
}

var digestSuffix = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// isPinned reports whether an image has a digest.
func isPinned(spec string) bool { return digestSuffix.MatchString(spec) }

// An openImage is an image, or an index of images for several platforms.
type openImage struct {
	oci.Store
	root      v1.Descriptor
	platforms []v1.Descriptor // the images of the index, or the image itself
}

// openImage opens an image. The caller closes it.
func (b *builder) openImage(ctx context.Context, location oci.Location) (*openImage, error) {
	store, err := oci.Open(ctx, location, oci.Options{Insecure: b.options.Insecure, Platform: defaultPlatform})
	if err != nil {
		return nil, err
	}
	image := &openImage{Store: store}
	if err := image.readRoot(ctx, location.Identifier); err != nil {
		store.Close() //nolint:errcheck // it was only read
		return nil, err
	}
	return image, nil
}

func (i *openImage) readRoot(ctx context.Context, identifier string) (err error) {
	if i.root, err = i.Resolve(ctx, identifier); err != nil {
		return err
	}
	if !i.root.MediaType.IsIndex() {
		i.platforms = []v1.Descriptor{i.root}
		return nil
	}
	raw, err := i.Manifest(ctx, i.root)
	if err != nil {
		return err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("index %s: %w", i.root.Digest, err)
	}
	for _, described := range index.Manifests {
		if platform := described.Platform; platform != nil && platform.OS != "" && platform.OS != "unknown" {
			i.platforms = append(i.platforms, described) // the others are attestations, for example
		}
	}
	if len(i.platforms) == 0 {
		return fmt.Errorf("index %s has no image for any platform", i.root.Digest)
	}
	return nil
}

// defaultPlatform is the platform whose manifests and labels count, on whatever machine a release is built.
var defaultPlatform = v1.Platform{OS: "linux", Architecture: "amd64"}

// main returns the image whose manifests and labels count: that of the default platform, or the first one.
func (i *openImage) main() v1.Descriptor {
	for _, described := range i.platforms {
		if described.Platform != nil && described.Platform.Satisfies(defaultPlatform) {
			return described
		}
	}
	return i.platforms[0]
}

// read returns the manifest and the configuration of an image. The platform of the configuration is that of the index.
func (i *openImage) read(ctx context.Context, described v1.Descriptor) (*v1.Manifest, *v1.ConfigFile, error) {
	raw, err := i.Manifest(ctx, described)
	if err != nil {
		return nil, nil, err
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
	}
	if !manifest.Config.MediaType.IsConfig() {
		return nil, nil, fmt.Errorf("manifest %s is not that of an image", described.Digest)
	}
	if manifest.MediaType == "" {
		manifest.MediaType = described.MediaType
	}
	raw, err = oci.ReadBlob(ctx, i, manifest.Config)
	var config v1.ConfigFile
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("config %s: %w", manifest.Config.Digest, err)
	}
	if listed := described.Platform; listed != nil {
		config.OS, config.Architecture, config.Variant = listed.OS, listed.Architecture, listed.Variant
	}
	return &manifest, &config, nil
}

// platformOf returns the platform of an image.
func platformOf(config *v1.ConfigFile) v1.Platform {
	return v1.Platform{OS: config.OS, Architecture: config.Architecture, Variant: config.Variant}
}

// resolve returns an image by its digest, and its configuration.
func (b *builder) resolve(ctx context.Context, spec string) (ResolvedImage, *v1.ConfigFile, error) {
	location, err := oci.ParseRegistry(spec, b.options.Insecure)
	if err != nil {
		return ResolvedImage{}, nil, err
	}
	image, err := b.openImage(ctx, location)
	if err != nil {
		return ResolvedImage{}, nil, err
	}
	defer image.Close() //nolint:errcheck // it was only read
	_, config, err := image.read(ctx, image.main())
	if err != nil {
		return ResolvedImage{}, nil, err
	}
	var annotations map[string]string
	for _, label := range sourceLabels {
		if value := config.Config.Labels[label]; value != "" {
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[label] = value
		}
	}
	resolved := payload.RepositoryOf(spec) + "@" + image.root.Digest.String()
	return ResolvedImage{From: spec, Image: resolved, Annotations: annotations}, config, nil
}
