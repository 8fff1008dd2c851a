package payload

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// imageTag matches the tag behind the repository of an image.
var imageTag = regexp.MustCompile(`^:\w[\w.-]{0,127}$`)

// A substitution replaces the images in manifests by those of the
// release.
type substitution struct {
	targets map[string]string // keyed by repository, or by image with a tag
	hosts   [][]byte          // hosts of all repositories: a quick search for them comes first
}

// newSubstitution maps repositories to pull specs.
func newSubstitution(targets map[string]string) *substitution {
	s := &substitution{targets: targets}
	hosts := map[string]bool{}
	for repository := range targets {
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

// mayChange returns false for most texts without images of the release, quickly.
func (s *substitution) mayChange(text []byte) bool {
	return slices.ContainsFunc(s.hosts, func(host []byte) bool { return bytes.Contains(text, host) })
}

// apply replaces the images in a text.
func (s *substitution) apply(text []byte) ([]byte, error) {
	if s == nil || len(s.hosts) <= fewHosts && !s.mayChange(text) {
		return text, nil
	}
	var out []byte
	copied := 0
	for start, word := range imageWords(text) {
		target := s.find(string(word))
		if target == "" {
			continue
		}
		out = append(append(out, text[copied:start]...), target...)
		copied = start + len(word)
		if len(out) > maxFile {
			return nil, errImages
		}
	}
	if len(out)+len(text)-copied > maxFile {
		return nil, errImages
	}
	return append(out, text[copied:]...), nil
}

// find returns what replaces an image; "" if nothing does. An image with the digest of another image stays: who wrote
// it means that one.
func (s *substitution) find(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	repository := RepositoryOf(name)
	target := cmp.Or(s.targets[image], s.targets[name])
	if tag := name[len(repository):]; target == "" && (tag == "" || imageTag.MatchString(tag)) {
		target = s.targets[repository]
	}
	if digest != "" && s.targets[image] == "" && !strings.HasSuffix(target, "@"+digest) {
		return ""
	}
	return target
}

// imageWords returns the words of a text that can be images, with their offsets: an image is a whole word, without the
// scheme of some programs. So it ends at every character that no image has, such as a blank, quote or comma.
func imageWords(text []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for end := 0; end < len(text); end++ {
			start := end
			for end < len(text) && isImageByte[text[end]] {
				end++
			}
			for _, scheme := range []string{"docker://", "oci://"} {
				if bytes.HasPrefix(text[start:end], []byte(scheme)) {
					start += len(scheme)
				}
			}
			if start < end && end-start <= maxPullSpec && !yield(start, text[start:end]) {
				return
			}
		}
	}
}

// isImageByte is true for the characters of images.
var isImageByte = func() (found [256]bool) {
	for _, c := range []byte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.:/@+-") {
		found[c] = true
	}
	return found
}()

// errImages is the error of a text that substitution makes too long.
var errImages = &yamltext.TextError{
	Message: "with the images of the release it has more than 32 MiB, which is the limit for a file",
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

// substitution returns the substitution of the release's images, without placeholders; nil for a release that was
// built, whose manifests have their images.
func (r *reader) substitution() *substitution {
	if r.isBuilt {
		return nil
	}
	images := maps.Clone(r.payload.Images)
	maps.DeleteFunc(images, func(name, _ string) bool { return r.placeholders[name] != "" })
	found, _, err := substitutionOf(images, nil)
	if err != nil {
		r.reportMislabelled(r.imagesPath, "%s", err)
	}
	return found
}

// reportPlaceholders warns of the placeholders in a text that are not replaced, each once.
func (r *reader) reportPlaceholders(file *manifestFile, text []byte) {
	for _, name := range slices.Sorted(maps.Keys(r.placeholders)) {
		for offset, word := range imageWords(text) {
			if string(word) != r.placeholders[name] {
				continue
			}
			file.problems = append(file.problems,
				Problem{File: file.Path, Line: 1 + bytes.Count(text[:offset], []byte("\n")), Cause: Placeholder,
					Message: fmt.Sprintf("%s is a placeholder of %s, and no image takes its place: give one by "+
						"--image %s=IMAGE", r.placeholders[name], ImagesFile, name)})
			break
		}
	}
}

// rewrite substitutes images, and in a component's text versions.
func (r *reader) rewrite(file *manifestFile, text []byte) ([]byte, error) {
	if r.rewriting == nil {
		return r.images.apply(text)
	}
	text, unknown, err := r.rewriting.Apply(text)
	for _, part := range unknown {
		file.problems = append(file.problems, Problem{File: file.Path, Cause: Mislabelled, Message: UnknownPart(part)})
	}
	return text, err
}
