package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// A Location is where an image is: in a repository of a registry, or in a layout or archive on disk.
type Location struct {
	Repository name.Repository // of a registry; zero for an image on disk
	Path       string          // of a layout or archive; empty for an image in a registry
	Identifier string          // tag or digest; may be empty for an image on disk
}

// IsRegistry reports whether the image is in a registry.
func (l Location) IsRegistry() bool { return l.Path == "" }

// String returns the location as a user writes it.
func (l Location) String() string {
	place := l.Path
	if l.IsRegistry() {
		place = l.Repository.Name()
	}
	switch {
	case l.Identifier == "":
		return place
	case strings.Contains(l.Identifier, ":"):
		return place + "@" + l.Identifier
	default:
		return place + ":" + l.Identifier
	}
}

// Parse returns the location of an image: registry.example/repo:TAG or @DIGEST, or a layout or archive on disk, with
// a tag or digest if it has several images. What exists on disk has precedence. It reads the disk, but never the
// network.
func Parse(ref string, insecure bool) (Location, error) {
	if _, err := os.Stat(ref); err == nil {
		return Location{Path: ref}, nil
	}
	for i, c := range ref {
		if c != ':' && c != '@' {
			continue
		}
		if IsLayout(ref[:i]) {
			return Location{Path: ref[:i], Identifier: ref[i+1:]}, nil
		}
	}
	if strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "~") {
		return Location{}, &RewordedError{Text: "no such file or folder", Err: fs.ErrNotExist}
	}
	return ParseRegistry(ref, insecure)
}

// ParseTarget returns the location of a future image, with a tag unless it names another. What neither
// exists on disk nor begins with a registry is a new layout, or a new archive if it ends in .tar.
func ParseTarget(ref, tag string, insecure bool) (location Location, err error) {
	location, err = Parse(ref, insecure)
	host, _, hasPath := strings.Cut(ref, "/")
	isHost := !strings.HasPrefix(host, ".") && strings.ContainsAny(host, ".:") || host == "localhost"
	switch end := strings.LastIndex(ref, ":"); {
	case strings.Contains(ref, "@"):
		return location, errors.New("an image can't be written to a digest: write a tag instead")
	case err == nil:
		location.Identifier = cmp.Or(location.Identifier, tag)
	case hasPath && isHost:
		location, err = ParseRegistry(ref+":"+tag, insecure)
	case end > strings.LastIndexAny(ref, `/\`):
		location, err = Location{Path: ref[:end], Identifier: ref[end+1:]}, nil
	default:
		location, err = Location{Path: ref, Identifier: tag}, nil
	}
	if err == nil && location.Identifier != "" {
		err = CheckTag(location.Identifier)
	}
	if strings.HasSuffix(location.Path, ".tgz") || strings.HasSuffix(location.Path, ".gz") {
		err = errors.New("an archive of a layout isn't compressed: write FILE.tar")
	}
	return location, err
}

var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// CheckTag returns an error if a text can't be a tag.
func CheckTag(text string) error {
	if tagPattern.MatchString(text) {
		return nil
	}
	return fmt.Errorf("%q is not a tag: use up to 128 letters, digits, \"_\", \".\" and \"-\"", text)
}

// ParseRegistry returns the location of an image in a registry. The registry, and a tag or digest, are required: a
// mistyped folder must not be requested from a default registry.
func ParseRegistry(ref string, insecure bool) (Location, error) {
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	image, err := name.ParseReference(ref, options...)
	if rest, isHub := strings.CutPrefix(ref, "docker.io/"); err != nil && isHub && !strings.Contains(rest, "/") {
		return Location{}, fmt.Errorf("not an image reference: write docker.io/library/%s", rest)
	} else if err != nil {
		return Location{}, errors.New("not an image reference: an image needs its registry and a tag or digest, as " +
			"in registry.example/repo:tag")
	}
	return Location{Repository: image.Context(), Identifier: image.Identifier()}, nil
}

// Options are the options of Open and Create.
type Options struct {
	// Platform chooses between images of a layout that are one image for several platforms, without an index.
	Platform v1.Platform
	// Insecure allows a registry that only has plain http, or a certificate that isn't trusted.
	Insecure bool
}

// Open opens the store with an image.
func Open(_ context.Context, location Location, options Options) (Store, error) {
	if location.IsRegistry() {
		return openRegistry(location.Repository, options.Insecure, transport.PullScope)
	}
	layout, err := OpenLayout(location.Path)
	if err != nil {
		return nil, err
	}
	layout.platform = options.Platform
	return layout, nil
}

// Create opens a store to write to. On disk, it is created if it does not exist.
func Create(ctx context.Context, location Location, options Options) (Target, error) {
	if location.IsRegistry() {
		return openRegistry(location.Repository, options.Insecure, transport.PushScope)
	}
	return CreateLayout(ctx, location.Path)
}
