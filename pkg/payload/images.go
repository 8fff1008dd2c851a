package payload

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What may stand behind the repository of an image.
var (
	imageTag    = regexp.MustCompile(`^:\w[\w.-]{0,127}$`)
	imageDigest = regexp.MustCompile(`^@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{2,}$`)
)

// A substitution puts the release's images in the place of those that manifests
// were written with.
type substitution struct {
	targets map[string]string // by repository
	lengths []bool            // that repositories have
	hosts   [][]byte          // what every repository begins with: to look for these is quick
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
			continue // it is no image
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

// fewHosts is how many hosts are looked for before a text is looked through word by word.
const fewHosts = 10

// apply replaces the images in a text. An image stands between blanks, quotes, and the ends of the
// text; in front of it there may be anything that ends with no letter, digit or underscore.
func (s *substitution) apply(text []byte) ([]byte, error) {
	if s == nil || len(s.hosts) <= fewHosts && !slices.ContainsFunc(s.hosts, func(host []byte) bool { return bytes.Contains(text, host) }) {
		return text, nil
	}
	var out []byte
	copied := 0
	for end := 0; end < len(text); end++ {
		start := end
		for end < len(text) && !endsImage[text[end]] {
			end++
		}
		at, target := s.find(text[start:end])
		if at < 0 {
			continue
		}
		out = append(append(out, text[copied:start+at]...), target...)
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

// endsImage says of a byte whether it ends an image.
var endsImage = [256]bool{'\t': true, '\n': true, '\f': true, '\r': true, ' ': true, '"': true, '\'': true}

// errImages is a text that is too long once its images are in their places.
var errImages = &errSyntax{message: "with the images of the release it has more than 32 MiB, which is the limit for a file"}

// find returns where the first image begins in a word, with what to put in the place of all that
// follows; -1 if there is none. Of several that begin there it is the shortest.
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

// indexOfImage returns where an image first stands in a text, and not as a part of another; -1 if nowhere.
func indexOfImage(text, image []byte) int {
	for start := 0; ; start++ {
		at := bytes.Index(text[start:], image)
		if at < 0 {
			return -1
		}
		start += at
		end := start + len(image)
		if (start == 0 || !isWordByte(text[start-1])) && (end == len(text) || endsImage[text[end]]) {
			return start
		}
	}
}

// isWordByte is \w of regular expressions.
func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// substitutionOf is the one of a release: its own images by their repositories,
// and what stands for them in a component's manifests. A repository that several
// images share says nothing about which of them is meant. Missing are the names of
// images that something stands for, and that the release does not have.
func substitutionOf(images, placeholders map[string]string) (_ *substitution, missing []string, _ error) {
	targets := map[string]string{}
	shared := map[string]bool{}
	for _, spec := range images {
		repository := repositoryOf(spec)
		if !namesRegistry(repository) {
			continue // "web" may be an image, and may be anything else
		}
		if other, twice := targets[repository]; twice && other != spec {
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
		if other, twice := named[placeholder]; twice {
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

// namesRegistry says whether a repository begins with a registry, as registry.example/web
// does. Only then can nothing else be meant by it.
func namesRegistry(repository string) bool {
	host, path, found := strings.Cut(repository, "/")
	return found && path != "" && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// repositoryOf takes digest and tag off a pull spec.
func repositoryOf(spec string) string {
	spec, _, _ = strings.Cut(spec, "@")
	if colon := strings.LastIndex(spec, ":"); colon > strings.LastIndex(spec, "/") {
		return spec[:colon]
	}
	return spec
}
