package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"github.com/runlevel/runlevel/internal/text/reason"
)

// A Mirror names the places with copies of images.
type Mirror struct {
	Source  string   // what images begin with: a host, a host with a path, or *.DOMAIN
	Mirrors []string // what takes its place, in the order of attempts
	IsOnly  bool     // the source itself is not tried
}

// Mirrors are the mirrors of several sources. As the value of a flag, they are written SOURCE=MIRROR, with commas
// between them.
type Mirrors []Mirror

// Locations returns the locations from which to read an image, in their order: its mirrors, and then its own location,
// unless a mirror forbids that one. If several sources match, the most exact one counts. An image by tag is not read
// from mirrors: its tag may name another image there.
func (m Mirrors) Locations(image string) []string {
	if !strings.Contains(image, "@") {
		return []string{image}
	}
	var locations []string
	best, isForbidden := "", false
	for _, mirror := range m {
		matched := matchedPart(image, mirror.Source)
		if matched == "" || len(mirror.Mirrors) == 0 || isLessExact(image, mirror.Source, best) {
			continue
		}
		if mirror.Source != best {
			best, isForbidden, locations = mirror.Source, false, nil
		}
		isForbidden = isForbidden || mirror.IsOnly
		for _, place := range mirror.Mirrors {
			locations = append(locations, place+strings.TrimPrefix(image, matched))
		}
	}
	if !isForbidden {
		locations = append(locations, image)
	}
	return locations
}

// matchedPart returns the beginning of an image that a source matches: a host, a host with a path, or *.DOMAIN.
func matchedPart(image, source string) string {
	if domain, isWildcard := strings.CutPrefix(source, "*"); isWildcard {
		host, _, _ := strings.Cut(image, "/")
		name, _, _ := strings.Cut(host, ":")
		if strings.HasSuffix(name, domain) || strings.HasSuffix(host, domain) {
			return host
		}
		return ""
	}
	rest, isPrefix := strings.CutPrefix(image, source)
	if isPrefix && rest != "" && strings.ContainsRune("/@", rune(rest[0])) {
		return source
	}
	return ""
}

// isLessExact reports whether a source matches more images than another one. Both match the image.
func isLessExact(image, source, other string) bool {
	isWildcard := func(s string) int { return strings.Count(s, "*") }
	return other != "" && cmp.Or(
		cmp.Compare(len(matchedPart(image, source)), len(matchedPart(image, other))),
		-cmp.Compare(isWildcard(source), isWildcard(other)), cmp.Compare(len(source), len(other)),
	) < 0
}

// String implements pflag.Value.
func (m *Mirrors) String() string {
	var pairs []string
	for _, mirror := range *m {
		for _, place := range mirror.Mirrors {
			pairs = append(pairs, mirror.Source+"="+place)
		}
	}
	return strings.Join(pairs, ",")
}

// Type implements pflag.Value.
func (m *Mirrors) Type() string { return "SOURCE=MIRROR" }

// Set implements pflag.Value. It adds mirrors; without text, it removes them.
func (m *Mirrors) Set(text string) error {
	if text == "" {
		*m = nil
		return nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		from, place, _ := strings.Cut(pair, "=")
		if !IsImagePrefix(from) || !IsImagePrefix(place) {
			return errors.New("write SOURCE=MIRROR with registries or repositories, without scheme, tag or digest, " +
				"as in registry.example/shop=mirror.example:5000/shop")
		}
		*m = append(*m, Mirror{Source: from, Mirrors: []string{place}})
	}
	return nil
}

// IsImagePrefix reports whether a text is a registry, or a registry with a path.
func IsImagePrefix(text string) bool {
	host, path, hasPath := strings.Cut(text, "/")
	isHost := host == "localhost" || strings.ContainsAny(strings.TrimLeft(host, "."), ".:")
	if !isHost || strings.HasPrefix(path, "/") {
		return false
	}
	_, err := name.NewRegistry(host, name.StrictValidation)
	if err == nil && hasPath {
		_, err = name.NewRepository(host+"/"+path, name.StrictValidation)
	}
	return err == nil
}

// openFirst opens an image by digest from the first of its locations that has it. Other refs have one location.
func openFirst(ctx context.Context, ref string, options Options) (*Release, error) {
	locations := []string{ref}
	if IsByDigest(ref) {
		locations = options.Mirrors.Locations(ref)
	}
	var failed error
	for _, location := range locations {
		release, err := open(ctx, location, options)
		switch {
		case err == nil && location != ref:
			release.Image = ref // the digest is the same everywhere
			return release, nil
		case err == nil:
			return release, nil
		case failed == nil:
			failed = wrapError(ctx, location, err)
		default:
			failed = fmt.Errorf("%w; %w", failed, wrapError(ctx, location, err))
			failed = &reason.Error{Reason: RetrievalFailed, Err: failed}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}
