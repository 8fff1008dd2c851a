package build

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/pkg/payload"
)

// The labels of a release.
const (
	releaseLabel = "io.openshift.release"
	baseLabel    = "io.openshift.release.base-image-digest"
)

// A variant is the image of one platform.
type variant struct {
	manifest *v1.Manifest
	config   *v1.ConfigFile // has the platform
}

// pack makes the image of the release, and the documents about it.
func (b *builder) pack(ctx context.Context, release *Release) error {
	variants, err := b.variants(ctx, release)
	if err != nil {
		return err
	}
	diff, compressed, err := b.layer()
	if err != nil {
		return err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	if variants[0].manifest.MediaType == types.DockerManifestSchema2 {
		index.MediaType = types.DockerManifestList
	}
	for _, variant := range variants {
		image, err := b.addVariant(release.store, variant, diff, compressed)
		if err != nil {
			return err
		}
		release.Size = max(release.Size, variant.size())
		platform := platformOf(variant.config)
		image.Platform = &platform
		index.Manifests = append(index.Manifests, image)
	}
	release.Root = index.Manifests[0]
	release.Root.Platform = nil
	if len(variants) > 1 {
		if release.Root, err = release.store.addJSON(index.MediaType, index); err != nil {
			return err
		}
	}
	return b.addDocuments(release)
}

// variants returns the images that the release is put on, one for each platform. Without a base they are empty.
func (b *builder) variants(ctx context.Context, release *Release) (found []variant, err error) {
	wanted := b.options.Platforms
	if b.options.Base == "" {
		if len(wanted) == 0 {
			wanted = []v1.Platform{defaultPlatform}
		}
		for i, platform := range wanted {
			if slices.ContainsFunc(wanted[:i], platform.Equals) {
				continue
			}
			manifest := &v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
			manifest.Config.MediaType = types.OCIConfigJSON
			config := &v1.ConfigFile{OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant}
			found = append(found, variant{manifest, config})
		}
		return found, nil
	}
	base, available, missing := release.store.base, []string{}, slices.Clone(wanted)
	for _, described := range base.platforms {
		manifest, config, err := base.read(ctx, described)
		if err != nil {
			return nil, fmt.Errorf("base %s: %w", b.options.Base, err)
		}
		if version := config.Config.Labels[releaseLabel]; version != "" {
			return nil, fmt.Errorf("base %s: it is a release itself, %s: name the image that this one was put on",
				b.options.Base, version)
		}
		platform := platformOf(config)
		available = append(available, platform.String())
		if len(wanted) == 0 || slices.ContainsFunc(wanted, platform.Satisfies) {
			found = append(found, variant{manifest, config})
			missing = slices.DeleteFunc(missing, platform.Satisfies)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("base %s: it does not have all platforms of --platform: it has %s", b.options.Base,
			strings.Join(available, ", "))
	}
	return found, nil
}

// size returns the bytes of an image.
func (v *variant) size() int64 {
	size := v.manifest.Config.Size
	for _, layer := range v.manifest.Layers {
		size += layer.Size
	}
	return size
}

// addVariant adds the layer of the release to an image. All labels of the base are dropped, as upstream does: they
// describe another image.
func (b *builder) addVariant(store *memoryStore, v variant, diff v1.Hash, layer []byte) (v1.Descriptor, error) {
	created := v1.Time{Time: b.time}
	v.config.Created, v.config.Container = created, ""
	v.config.Config.Labels = map[string]string{releaseLabel: b.config.Version}
	if store.base != nil {
		v.config.Config.Labels[baseLabel] = store.base.root.Digest.String()
	}
	v.config.History = append(v.config.History, v1.History{Created: created, Comment: "Release image"})
	v.config.RootFS.Type, v.config.RootFS.DiffIDs = "layers", append(v.config.RootFS.DiffIDs, diff)
	kind := types.OCILayer
	if v.manifest.MediaType == types.DockerManifestSchema2 {
		kind = types.DockerLayer
	}
	described, err := store.addJSON(v.manifest.Config.MediaType, v.config)
	if err != nil {
		return described, err
	}
	v.manifest.Config, v.manifest.Annotations = described, nil
	v.manifest.Layers = append(v.manifest.Layers, store.add(kind, layer))
	return store.addJSON(v.manifest.MediaType, v.manifest)
}

// openBase opens the base of the release, so that its layers can be copied.
func (b *builder) openBase(ctx context.Context, release *Release) (err error) {
	ref := b.options.Base
	if ref == "" {
		return nil
	}
	if b.options.Lock != nil {
		locked, err := b.options.Lock.Base.locked(ref)
		if err != nil {
			return fmt.Errorf("base %s: %w", ref, err)
		}
		ref = locked.Image
	}
	location, err := oci.Parse(ref, b.options.Insecure)
	if err == nil {
		release.store.base, err = b.openImage(ctx, location)
	}
	if err != nil {
		return fmt.Errorf("base %s: %w", ref, err)
	}
	digest := release.store.base.root.Digest.String()
	release.Lock.Base = &ResolvedImage{From: b.options.Base, Image: payload.RepositoryOf(b.options.Base) + "@" + digest}
	return nil
}
