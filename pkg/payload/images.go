package payload

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// The suffixes that the repository of an image may have.
var (
	imageTag    = regexp.MustCompile(`^:\w[\w.-]{0,127}$`)
	imageDigest = regexp.MustCompile(`^@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{2,}$`)
)

// A substitution replaces the images in manifests by those of the
// release.
type substitution struct {
	targets map[string]string // keyed by repository
	lengths []bool            // lengths that repositories have
	hosts   [][]byte          // hosts of all repositories: a quick search for them comes first
}

// newSubstitution maps repositories to pull specs.
func newSubstitution(targets map[string]string) *substitution {
	if len(targets) == 0 {
		return nil
	}
	s := &substitution{targets: targets, lengths: make([]bool, maxPullSpec+1)}
	hosts := map[string]bool{}
	for repository := range targets {
		if len(repository) > maxPullSpec {
			continue // it is not an image
		}
		s.lengths[len(repository)] = true
		host, _, _ := strings.Cut(repository, "/")
		hosts[host] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		s.hosts = append(s.hosts, []byte(host))
	}
	return s
}

// fewHosts is the number of hosts up to which a text is searched for them first.
const fewHosts = 10

// apply replaces the images in a text. An image is delimited by blanks, quotes, and the ends of the
// text; before it there may be other text that does not end with a letter, digit or underscore.
func (s *substitution) apply(text []byte) ([]byte, error) {
	if s == nil || len(s.hosts) <= fewHosts &&
		!slices.ContainsFunc(s.hosts, func(host []byte) bool { return bytes.Contains(text, host) }) {
		return text, nil
	}
	var out []byte
	copied := 0
	for end := 0; end < len(text); end++ {
		start := end
		for end < len(text) && !endsImage[text[end]] {
			end++
		}
		index, target := s.find(text[start:end])
		if index < 0 {
			continue
		}
		out = append(append(out, text[copied:start+index]...), target...)
		copied = end
		if len(out) > maxFile {
			return nil, errImages
		}
	}
	if len(out)+len(text)-copied > maxFile {
		return nil, errImages
	}
	return append(out, text[copied:]...), nil
}

// endsImage is true for bytes that end an image.
var endsImage = [256]bool{'\t': true, '\n': true, '\f': true, '\r': true, ' ': true, '"': true, '\'': true}

// errImages is the error of a text that substitution makes too long.
var errImages = &yamltext.TextError{
	Message: "with the images of the release it has more than 32 MiB, which is the limit for a file",
}

// find returns the offset of the first image in a word, and the replacement for the rest of
// the word; -1 if there is none. Of several images at an offset it is the shortest.
func (s *substitution) find(word []byte) (int, string) {
	ends := []int{bytes.LastIndexByte(word, ':'), bytes.LastIndexByte(word, '@'), len(word)}
	slices.Sort(ends)
	for start := max(0, ends[0]-maxPullSpec); start < len(word); start++ {
		if !isWordByte(word[start]) || start > 0 && isWordByte(word[start-1]) {
			continue
		}
		for _, end := range ends {
			length := end - start
			if length < 1 || length > maxPullSpec || !s.lengths[length] {
				continue
			}
			target, found := s.targets[string(word[start:end])]
			if found && (end == len(word) || imageTag.Match(word[end:]) || imageDigest.Match(word[end:])) {
				return start, target
			}
		}
	}
	return -1, ""
}

// indexOfImage returns the offset of an image in a text, if it is not a part of another image; -1 if there is none.
func indexOfImage(text, image []byte) int {
	for start := 0; ; start++ {
		offset := bytes.Index(text[start:], image)
		if offset < 0 {
			return -1
		}
		start += offset
		end := start + len(image)
		if (start == 0 || !isWordByte(text[start-1])) && (end == len(text) || endsImage[text[end]]) {
			return start
		}
	}
}

// isWordByte reports whether \w of regular expressions matches a byte.
func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// substitutionOf returns the substitution of a release: its images by their repositories,
// and by their placeholders in a component's manifests. A repository that several
// images share is ambiguous, and is left out. Missing are the names of
// images with a placeholder that the release does not have.
func substitutionOf(images, placeholders map[string]string) (_ *substitution, missing []string, _ error) {
	targets := map[string]string{}
	shared := map[string]bool{}
	for _, spec := range images {
		repository := RepositoryOf(spec)
		if !namesRegistry(repository) {
			continue // "web" may be an image, and may be anything else
		}
		if other, isRepeated := targets[repository]; isRepeated && other != spec {
			shared[repository] = true
		}
		targets[repository] = spec
	}
	maps.DeleteFunc(targets, func(repository, _ string) bool { return shared[repository] })
	named := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(placeholders)) {
		placeholder := placeholders[name]
		spec, known := images[name]
		if placeholder == "" {
			return nil, nil, fmt.Errorf("nothing stands for the image %q", name)
		}
		if other, isRepeated := named[placeholder]; isRepeated {
			return nil, nil, fmt.Errorf("%s stands for two images, %q and %q", placeholder, other, name)
		}
		named[placeholder] = name
		if known {
			targets[placeholder] = spec
		} else {
			missing = append(missing, name)
		}
	}
	return newSubstitution(targets), missing, nil
}

// namesRegistry reports whether a repository begins with a registry, as registry.example/web
// does. Otherwise the text may be anything else.
func namesRegistry(repository string) bool {
	host, path, found := strings.Cut(repository, "/")
	return found && path != "" && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// RepositoryOf returns a pull spec without digest and tag.
func RepositoryOf(spec string) string {
	spec, _, _ = strings.Cut(spec, "@")
	if colon := strings.LastIndex(spec, ":"); colon > strings.LastIndex(spec, "/") {
		return spec[:colon]
	}
	return spec
}
