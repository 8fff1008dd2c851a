// Package source opens a release as files, from a folder in the cluster-version
// operator's format or a plain one of manifests, a single file or standard input, a tar archive, an OCI image layout on
// disk, an image in a registry, or a version that was applied to a cluster.
//
// The result is one read-only fs.FS. The content of a release isn't trusted: its
// size and number of files are bounded, names and links stay inside, and content with
// a digest is verified. The package doesn't parse manifests, and writes nothing to
// disk.
//
// Start with Open.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/oci"
)

// RetrievalFailed is the reason of every error of Open.
const RetrievalFailed = "UpdatePayloadRetrievalFailed"

// A Format is the format of the source of a release.
type Format string

// The formats.
const (
	Directory Format = "directory"
	Archive   Format = "archive"
	Layout    Format = "layout"
	Image     Format = "image"
	File      Format = "file"    // a single file of manifests
	Input     Format = "input"   // standard input
	Applied   Format = "applied" // an applied version, from the copy on the cluster
)

// Options are the options of Open. The zero value works.
type Options struct {
	// Platform is the platform of an image, as in linux/arm64. The default is linux on
	// this machine's architecture.
	Platform string
	// Insecure allows a registry that only has plain http, or a certificate that isn't
	// trusted.
	Insecure bool
	Mirrors  Mirrors // places to read images by digest from, before their own
	Limits   Limits
	Progress io.Writer // gets a line before an image is pulled; may be nil
	Input    io.Reader // standard input, for the ref "-"; nil if there is none
	Versions Versions  // finds refs such as shop@3; nil if there are none
}

// Versions are the versions of releases that were applied.
type Versions interface {
	// OpenApplied opens a version by its number or name; "" is the one that was applied last. A Release without
	// files is read from its Image.
	OpenApplied(ctx context.Context, name, version string) (*Release, error)
}

// A Release is an open release.
type Release struct {
	FS   fs.FS // its files, safe for concurrent use
	Kind Format

	// Image is repository@sha256:… of an image in a registry, and Digest the digest of
	// an image in a registry or layout. For images of several platforms it's the digest
	// of their index, so it is the same on all platforms.
	Image  string
	Digest string
	// Location is where the image is, by its digest; zero for other formats.
	Location oci.Location

	// Values are the options with which an applied version was read, for reading it again; nil for other formats.
	Values []byte

	close func() error
}

// Close frees the resources of Open. FS must not be used afterwards.
func (r *Release) Close() error {
	if r.close == nil {
		return nil
	}
	return r.close()
}

// Open opens the release of a ref. A path on disk has precedence over an image or an applied version of
// the same name; LAYOUT:tag or LAYOUT@sha256:… chooses one of several images of a layout.
// Its errors are of type *reason.Error.
func Open(ctx context.Context, ref string, options Options) (*Release, error) {
	return openFirst(ctx, ref, options)
}

func open(ctx context.Context, ref string, options Options) (*Release, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	platform, err := ParsePlatform(options.Platform)
	if err != nil {
		return nil, err
	}
	found, err := locate(ref, options.Insecure)
	if err != nil {
		return nil, err
	}
	limits := options.Limits.withDefaults()
	imageExtractor := &extractor{platform: platform, budget: &budget{limits: limits}}
	switch found.kind {
	case Directory:
		return openDirectory(found.path, limits)
	case File:
		return openFile(ctx, found.path, limits)
	case Input:
		return openInput(ctx, options.Input, limits)
	case Archive:
		return openArchive(ctx, found.path, limits)
	case Applied:
		return openApplied(ctx, found, options)
	default:
		if found.kind == Image && options.Progress != nil {
			fmt.Fprintf(options.Progress, "pulling %s\n", ref)
		}
		return openImage(ctx, found.image, imageExtractor, oci.Options{Platform: platform, Insecure: options.Insecure})
	}
}

// openApplied opens a version that was applied, or its image, if the cluster has no files of the version.
func openApplied(ctx context.Context, found location, options Options) (*Release, error) {
	if options.Versions == nil {
		return nil, errors.New("a version that was applied can't be read here")
	}
	version, err := options.Versions.OpenApplied(ctx, found.name, found.version)
	if err != nil || version.FS != nil {
		return version, err
	}
	opened, err := openFirst(ctx, version.Image, options)
	if err != nil {
		return nil, err
	}
	opened.Values = version.Values
	return opened, nil
}

// ParsePlatform parses a platform such as linux/arm64. The default is linux on this machine's architecture.
func ParsePlatform(given string) (v1.Platform, error) {
	if given == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	platform, err := v1.ParsePlatform(given)
	if err != nil || platform.OS == "" || platform.Architecture == "" {
		return v1.Platform{}, fmt.Errorf("%q is not a platform: write one such as linux/arm64", given)
	}
	return *platform, nil
}
