// Package source finds a release and opens it as files, from wherever it is: a
// folder in the cluster version operator's shape or a plain one of manifests, a tar
// archive, an OCI image layout on disk, or an image in a registry.
//
// The result is one read-only fs.FS. The content of a release isn't trusted: its
// size and number of files are bounded, names and links stay inside, and what has a
// digest is compared with it. The package doesn't know what a manifest is, keeps
// nothing on disk and writes nowhere.
//
// Open is the call to start from.
package source

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// RetrievalFailed is the reason of every error of Open.
const RetrievalFailed = "UpdatePayloadRetrievalFailed"

// A Format is what a release is read from.
type Format string

// The kinds there are.
const (
	Directory Format = "directory"
	Archive   Format = "archive"
	Layout    Format = "layout"
	Image     Format = "image"
)

// Options say how to open a release. The zero value will do.
type Options struct {
	// Platform says which image of several to take, as in linux/arm64. Without it
	// that's linux on this machine's architecture.
	Platform string
	// Insecure allows a registry that only has plain http, or a certificate that
	// proves nothing.
	Insecure bool
	Limits   Limits
	Progress io.Writer // gets a line before an image is pulled, if there is one
}

// A Release is an open release.
type Release struct {
	FS   fs.FS // its files, safe for use by several at once
	Kind Format

	// Image is repository@sha256:… of an image in a registry, and Digest its digest
	// alone, which that of a layout has as well. Of several platforms' images it's
	// the digest of the index of them all, so it means the same everywhere.
	Image  string
	Digest string

	close func() error
}

// Close gives back what Open took. FS is of no use afterwards.
func (r *Release) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// Open opens the release that ref names. Something on disk wins over an image of the
// same name; of a layout with several images, LAYOUT:tag or LAYOUT@sha256:… is one.
// Its errors are of type *reason.Error.
func Open(ctx context.Context, ref string, options Options) (*Release, error) {
	release, err := open(ctx, ref, options)
	if err != nil {
		return nil, failure(ctx, ref, err)
	}
	return release, nil
}

func open(ctx context.Context, ref string, options Options) (*Release, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	platform, err := parsePlatform(options.Platform)
	if err != nil {
		return nil, err
	}
	found, err := locate(ref, options.Insecure)
	if err != nil {
		return nil, err
	}
	limits := options.Limits.orDefaults()
	take := &extractor{platform: platform, budget: &budget{limits: limits}}
	switch found.kind {
	case Directory:
		return openDirectory(found.path, limits)
	case Archive:
		return openArchive(ctx, found.path, limits)
	case Layout:
		return openLayout(ctx, found, take)
	default:
		if options.Progress != nil {
			fmt.Fprintf(options.Progress, "pulling %s\n", ref)
		}
		return openImage(ctx, found.image, take, options.Insecure)
	}
}

func parsePlatform(given string) (v1.Platform, error) {
	if given == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	platform, err := v1.ParsePlatform(given)
	if err != nil || platform.OS == "" || platform.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("%q is no platform: write it as in linux/arm64", given)
	}
	return *platform, nil
}
