package source

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// The folders of an image that are the release. The rest of the image is an operating
// system, and is ignored.
const (
	manifestsDir        = "manifests"
	releaseManifestsDir = "release-manifests"
	settingsFile        = "runlevel.yaml"
)

// Whiteouts, which hide files of lower layers: .wh.x hides x, and the opaque whiteout
// hides all files of its folder.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// isOfRelease reports whether an entry of an image is a file of the release, or a whiteout of one.
func isOfRelease(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch strings.TrimPrefix(top, whiteout) {
	case manifestsDir, releaseManifestsDir, settingsFile:
		return true
	default:
		return name == opaqueWhiteout
	}
}

// An extractor reads the release's files from an image.
type extractor struct {
	store    oci.Store
	platform v1.Platform
	budget   *budget
}

// extractPayload extracts the payload from the layers of an image.
func (e *extractor) extractPayload(ctx context.Context, manifest *v1.Manifest) (fs.FS, error) {
	payload := newTree(e.budget, true)
	for _, described := range manifest.Layers {
		layer, err := e.readLayer(ctx, described)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", described.Digest, err)
		}
		payload.addLayer(layer)
	}
	if !payload.hasFolder(manifestsDir) && !payload.hasFolder(releaseManifestsDir) {
		return nil,
			phrase{text: fmt.Sprintf("is not a release image: it has neither %s/ nor %s/", manifestsDir,
				releaseManifestsDir)}
	}
	return payload.files(".", e.budget.limits)
}

// readLayer reads a whole layer and keeps the files of the payload.
func (e *extractor) readLayer(ctx context.Context, described v1.Descriptor) (*tree, error) {
	// A long stream may unpack to nothing, so its compressed size is checked as well.
	if described.Size > e.budget.limits.Unpacked {
		return nil,
			oci.SizeError(fmt.Sprintf("it has %d bytes: the limit for unpacking is %s", described.Size,
				oci.InBytes(e.budget.limits.Unpacked)))
	}
	blob, err := e.store.Blob(ctx, described, 0)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	checked, err := oci.NewDigestReader(oci.Interruptible(ctx, blob), described)
	if err != nil {
		return nil, err
	}
	files := newTree(e.budget, true)
	err = e.unpack(checked, files)
	if oci.IsSizeError(err) || ctx.Err() != nil {
		return nil, err
	}
	// A wrong digest is reported first: it is the cause of other errors.
	if wrong := checked.Verify(); wrong != nil {
		return nil, wrong
	}
	return files, err
}

func (e *extractor) unpack(layer io.Reader, files *tree) error {
	unpacked, done, err := decompress(layer)
	if err != nil {
		return err
	}
	defer done()
	counted := e.budget.countingReader(unpacked)
	if err := files.read(counted); err != nil {
		return err
	}
	if _, err = io.Copy(io.Discard, counted); err != nil {
		return corruptionError(err)
	}
	return nil
}

// addLayer puts a layer on top of the tree. Whiteouts hide files of lower layers only. A file or link replaces
// the file or folder of its name.
func (t *tree) addLayer(layer *tree) {
	hidden, emptied := map[string]bool{}, map[string]bool{}
	for name, added := range layer.nodes {
		folder, base := path.Split(name)
		switch hides, isWhiteout := strings.CutPrefix(base, whiteout); {
		case base == opaqueWhiteout:
			emptied[path.Clean(folder)] = true
		case isWhiteout:
			hidden[path.Join(folder, hides)] = true
		case added.kind != tar.TypeDir:
			hidden[name] = true
		}
	}
	maps.DeleteFunc(t.nodes, func(name string, _ *node) bool {
		for parent := name; parent != "."; parent = path.Dir(parent) {
			if hidden[parent] || emptied[path.Dir(parent)] {
				return true
			}
		}
		return false
	})
	for name, added := range layer.nodes {
		if !strings.HasPrefix(path.Base(name), whiteout) {
			t.nodes[name] = added
		}
	}
}

func (t *tree) hasFolder(name string) bool {
	return t.nodes[name] != nil && t.nodes[name].kind == tar.TypeDir
}

// openImage reads the release in an image of a store. The config isn't used, but of an image on disk it is compared
// with its digest: a layout with any modified file is refused.
func openImage(ctx context.Context, location oci.Location, extractor *extractor,
	options oci.Options) (*Release, error) {
	store, err := oci.Open(ctx, location, options)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	found, err := store.Resolve(ctx, location.Identifier)
	if err != nil {
		return nil, err
	}
	extractor.store = store
	manifest, err := oci.FindImage(ctx, store, found, extractor.platform)
	if err != nil {
		return nil, err
	}
	if !location.IsRegistry() {
		if _, err := oci.ReadBlob(ctx, store, manifest.Config); err != nil {
			return nil, fmt.Errorf("config %s: %w", manifest.Config.Digest, err)
		}
	}
	files, err := extractor.extractPayload(ctx, manifest)
	if err != nil {
		return nil, err
	}
	location.Identifier = found.Digest.String()
	release := &Release{FS: files, Kind: Layout, Digest: location.Identifier, Location: location}
	if location.IsRegistry() {
		release.Kind, release.Image = Image, location.String()
	}
	return release, nil
}
