package payload

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// imagePattern finds an image of some repositories in a text: behind something
// that is no part of a word, with a tag, a digest or nothing, up to a blank, a
// quote or the end.
const imagePattern = `(^|\W)(%s)(?::\w[\w.-]{0,127}|@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{2,})?($|[\s"'])`

// A substitution puts the release's images in the place of those that manifests
// were written with.
type substitution struct {
	targets map[string]string // by repository
	hosts   [][]byte          // what every repository begins with: to look for these is quick
	pattern *regexp.Regexp
}

// newSubstitution maps repositories to pull specs.
func newSubstitution(targets map[string]string) *substitution {
	if len(targets) == 0 {
		return nil
	}
	s := &substitution{targets: targets}
	quoted := make([]string, 0, len(targets))
	hosts := map[string]bool{}
	for _, repository := range slices.Sorted(maps.Keys(targets)) {
		quoted = append(quoted, regexp.QuoteMeta(repository))
		host, _, _ := strings.Cut(repository, "/")
		hosts[host] = true
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		s.hosts = append(s.hosts, []byte(host))
	}
	s.pattern = regexp.MustCompile(fmt.Sprintf(imagePattern, strings.Join(quoted, "|")))
	return s
}

// apply replaces the images in a text.
func (s *substitution) apply(text []byte) []byte {
	if s == nil || !slices.ContainsFunc(s.hosts, func(host []byte) bool { return bytes.Contains(text, host) }) {
		return text
	}
	var out []byte
	rest := text
	for found := s.pattern.FindSubmatchIndex(rest); found != nil; found = s.pattern.FindSubmatchIndex(rest) {
		before, repository, behind := found[3], rest[found[4]:found[5]], found[6]
		out = append(append(out, rest[:before]...), s.targets[string(repository)]...)
		rest = rest[behind:] // what stands behind one image may be what stands in front of the next
	}
	return append(out, rest...)
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
