package source

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The folders of an image that are the release. All else in it is an operating
// system, and none of our business.
const (
	manifestsDir        = "manifests"
	releaseManifestsDir = "release-manifests"
)

// Files that take away what lower layers have: .wh.x hides x, and the whole name all
// that is in the folder.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

const (
	maxManifest = 8 * mib // bytes of a manifest, an index or a config
	maxNesting  = 4       // indexes in indexes
)

// isOfRelease reports whether an entry of an image is a file of the release, or a whiteout of one.
func isOfRelease(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch strings.TrimPrefix(top, whiteout) {
	case manifestsDir, releaseManifestsDir:
		return true
	default:
		return name == opaqueWhiteout
	}
}

// A store has the parts of images. What comes out of it isn't trusted: it's compared
// with its digest here.
type store interface {
	manifest(context.Context, v1.Descriptor) ([]byte, error)
	blob(context.Context, v1.Descriptor) (io.ReadCloser, error)
}

// An extractor reads the release's files from an image.
type extractor struct {
	store    store
	platform v1.Platform
	budget   *budget
}

// image finds the manifest of the one image that a descriptor stands for.
func (t *extractor) image(ctx context.Context, described v1.Descriptor) (*v1.Manifest, error) {
	for range maxNesting {
		raw, err := t.store.manifest(ctx, described)
		if err != nil {
			return nil, err
		}
		if err := checkManifest(described, raw); err != nil {
			return nil, err
		}
		var either struct {
			v1.Manifest
			Manifests []v1.Descriptor `json:"manifests"`
		}
		if err := json.Unmarshal(raw, &either); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", described.Digest, err)
		}
		kind := described.MediaType
		if either.MediaType != "" {
			kind = either.MediaType
		}
		switch {
		case kind.IsImage():
			return &either.Manifest, nil
		case !kind.IsIndex():
			return nil, fmt.Errorf("manifest %s is of type %q, which is neither an image nor an index of some", described.Digest, kind)
		}
		if described, err = choosePlatform(either.Manifests, t.platform); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("indexes are nested more than %d deep", maxNesting)
}

func choosePlatform(among []v1.Descriptor, wanted v1.Platform) (v1.Descriptor, error) {
	var has []string
	for _, d := range among {
		switch {
		case d.Platform == nil && len(among) == 1:
			return d, nil
		case d.Platform == nil || d.Platform.OS == "" || d.Platform.OS == "unknown":
			continue // an attestation, for example
		case d.Platform.Satisfies(wanted):
			return d, nil
		}
		has = append(has, d.Platform.String())
	}
	slices.Sort(has)
	if len(has) == 0 {
		return v1.Descriptor{}, fmt.Errorf("there is no image for %s, nor for any other platform", wanted)
	}
	return v1.Descriptor{}, fmt.Errorf("there is no image for %s, only for %s", wanted, strings.Join(slices.Compact(has), ", "))
}

// files takes the payload out of the layers of an image.
func (t *extractor) files(ctx context.Context, manifest *v1.Manifest) (fs.FS, error) {
	var layers []v1.Layer
	for _, described := range manifest.Layers {
		kept, err := t.layer(ctx, described)
		if err != nil {
			return nil, err
		}
		if len(kept.nodes) == 1 {
			continue // nothing but its root
		}
		written, err := kept.write()
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", described.Digest, err)
		}
		layers = append(layers, static.NewLayer(written, types.OCIUncompressedLayer))
	}
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, fmt.Errorf("put layers together: %w", err)
	}
	flat := mutate.Extract(image)
	defer flat.Close()
	payload := newTree(&budget{limits: t.budget.limits}, true)
	if err := payload.read(flat); err != nil {
		return nil, err
	}
	// An error of Extract comes after a proper end of the tar.
	if _, err := io.Copy(io.Discard, flat); err != nil {
		return nil, fmt.Errorf("put layers together: %w", err)
	}
	if !payload.hasFolder(manifestsDir) && !payload.hasFolder(releaseManifestsDir) {
		return nil, phrase{text: fmt.Sprintf("is no release image: it has neither %s/ nor %s/", manifestsDir, releaseManifestsDir)}
	}
	return payload.files(".", t.budget.limits)
}

// layer reads a whole layer and keeps what is of the payload.
func (t *extractor) layer(ctx context.Context, described v1.Descriptor) (*tree, error) {
	kept, err := t.readLayer(ctx, described)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", described.Digest, err)
	}
	return kept, nil
}

func (t *extractor) readLayer(ctx context.Context, described v1.Descriptor) (*tree, error) {
	// A stream may be long and unpack to nothing at all, so that counts as well.
	if described.Size > t.budget.limits.Unpacked {
		return nil, overLimit(fmt.Sprintf("it has %d bytes: the limit for unpacking is %s", described.Size, inBytes(t.budget.limits.Unpacked)))
	}
	from, err := t.store.blob(ctx, described)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	checked, err := newDigestReader(interruptible(ctx, from), described)
	if err != nil {
		return nil, err
	}
	kept := newTree(t.budget, true)
	err = t.unpack(checked, kept)
	if isOverLimit(err) || ctx.Err() != nil {
		return nil, err
	}
	// A wrong digest comes first: it explains whatever else is wrong.
	if wrong := checked.verify(); wrong != nil {
		return nil, wrong
	}
	return kept, err
}

func (t *extractor) unpack(from io.Reader, kept *tree) error {
	unpacked, done, err := decompress(from)
	if err != nil {
		return err
	}
	defer done()
	counted := t.budget.unpacking(unpacked)
	if err := kept.read(counted); err != nil {
		return err
	}
	if _, err = io.Copy(io.Discard, counted); err != nil {
		return corrupt(err)
	}
	return nil
}

// write makes a tar of the tree again, for mutate.Extract to lay on top of others.
// That remembers every name it sees and takes hard links from whichever layer is on
// top, so it gets only the payload, without hard links. Within a layer, whiteouts go
// last: they're about the layers below and not about their own.
func (t *tree) write() ([]byte, error) {
	names := slices.SortedFunc(maps.Keys(t.nodes), func(a, b string) int {
		if late := isWhiteout(a); late != isWhiteout(b) {
			if late {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	var written bytes.Buffer
	to := tar.NewWriter(&written)
	for _, name := range names {
		n := t.nodes[name]
		header := &tar.Header{Name: name, Typeflag: n.kind, Linkname: n.target, Size: int64(len(n.content)), Mode: 0o644, Format: tar.FormatPAX}
		if name == "." {
			continue
		}
		if err := to.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		if _, err := to.Write(n.content); err != nil {
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
	}
	return written.Bytes(), to.Close()
}

func isWhiteout(name string) bool {
	return strings.HasPrefix(path.Base(name), whiteout)
}

func (t *tree) hasFolder(name string) bool {
	return t.nodes[name] != nil && t.nodes[name].kind == tar.TypeDir
}
