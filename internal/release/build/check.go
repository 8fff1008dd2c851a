package build

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/pkg/payload"
)

// An imageField is a field of a manifest that has an image.
type imageField struct {
	path  []string
	image string
}

// imagePath matches the paths of images: in pods, their templates, and custom resources with the same lists.
var imagePath = regexp.MustCompile(
	`(^|/)((initContainers|containers)/\d+/image|env/\d+/value|volumes/\d+/image/reference)$`,
)

// imagesOf returns the images of the containers and volumes in a manifest, and those that an operator gets by variables
// RELATED_IMAGE_*.
func imagesOf(m *payload.Manifest) (found []imageField) {
	var walk func(value any, path []string)
	walk = func(value any, path []string) {
		switch value := value.(type) {
		case []any:
			for i, item := range value {
				walk(item, append(path, strconv.Itoa(i)))
			}
		case map[string]any:
			name, _ := value["name"].(string)
			for field, content := range value {
				if field != "value" || strings.HasPrefix(name, "RELATED_IMAGE_") {
					walk(content, append(path, field))
				}
			}
		case string:
			isField := slices.Contains([]string{"image", "value", "reference"}, path[len(path)-1])
			if isField && value != "" && imagePath.MatchString(strings.Join(path, "/")) {
				found = append(found, imageField{slices.Clone(path), value})
			}
		}
	}
	if !m.IsTombstone() {
		walk(m.Object().Object, nil)
	}
	slices.SortFunc(found, func(x, y imageField) int { return slices.Compare(x.path, y.path) })
	return found
}

// checkImages returns a problem for each image of a manifest without a digest. Images by digest that image-references
// lacks are added to it, so that they are mirrored with the release; added reports whether there were any.
func (b *builder) checkImages(release *Release) (added bool, problems []error) {
	known := map[string]bool{}
	for _, image := range b.images {
		known[image.Image] = true
	}
	declared := maps.Clone(b.images)
	for _, m := range release.Payload.All() {
		for _, field := range imagesOf(m) {
			if known[field.image] {
				continue
			}
			advice := b.adviceOn(field.image, declared)
			if advice == "" {
				known[field.image], added = true, true
				b.images[b.nameFor(field.image)] = ResolvedImage{From: field.image, Image: field.image}
				continue
			}
			line, column := m.Places().At(field.path...)
			problems = append(problems,
				problemAt(release.SourceOf(m.Path), line, column, "%s: image %s is not resolved: %s",
					m.ID(), field.image, advice))
		}
	}
	return added, problems
}

// adviceOn returns what to change so that an image is one of those of release.yaml; "" for an image by digest in
// another repository.
func (b *builder) adviceOn(image string, declared map[string]ResolvedImage) string {
	var sharing, tags []string // names of images with the same repository
	for _, name := range sortedKeys(declared) {
		if payload.RepositoryOf(declared[name].From) == payload.RepositoryOf(image) {
			sharing, tags = append(sharing, name), append(tags, declared[name].From)
		}
	}
	_, digest, isPinned := strings.Cut(image, "@")
	switch {
	case len(sharing) > 0 && isPinned:
		return fmt.Sprintf("it has the digest %s, and the image %s of the release is %s: name the same", digest,
			strings.Join(sharing, " or "), declared[sharing[0]].Image)
	case len(sharing) > 1:
		return fmt.Sprintf("%s has several images of its repository, so the tag must be one of theirs: write %s",
			b.config.path, strings.Join(tags, " or "))
	case checkImage(image) != nil:
		return fmt.Sprintf("write it with its registry and a tag, and add that under images of %s", b.config.path)
	case isPinned:
		return ""
	default:
		return fmt.Sprintf("add it under images of %s, as in %q", b.config.path, b.nameFor(image)+": "+image)
	}
}

// nameFor returns a name in image-references for an image of a manifest.
func (b *builder) nameFor(image string) string {
	name := strings.ToLower(path.Base(payload.RepositoryOf(image)))
	free := name
	for count := 2; b.images[free].Image != ""; count++ {
		free = fmt.Sprintf("%s-%d", name, count)
	}
	return free
}
