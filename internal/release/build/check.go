package build

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An imageField is a field of a manifest that has an image.
type imageField struct {
	path  []string
	image string
}

// imagesOf returns the images of a manifest's pod, and those that an operator gets by variables RELATED_IMAGE_*.
func imagesOf(m *payload.Manifest) []imageField {
	var found []imageField
	var each func(value any, path []string, names ...string)
	each = func(value any, path []string, names ...string) {
		if items, isList := value.([]any); isList {
			for i, item := range items {
				each(item, append(path[:len(path):len(path)], strconv.Itoa(i)), names...)
			}
			return
		}
		fields, isMapping := value.(map[string]any)
		if !isMapping {
			return
		}
		if name, _ := fields["name"].(string); names[0] == "value" && !strings.HasPrefix(name, "RELATED_IMAGE_") {
			return
		}
		below := append(path[:len(path):len(path)], names[0])
		if len(names) > 1 {
			each(fields[names[0]], below, names[1:]...)
		} else if image, isText := fields[names[0]].(string); isText && image != "" {
			found = append(found, imageField{below, image})
		}
	}
	spec := kinds.PodSpec(m.GroupVersionKind().GroupKind())
	if spec == nil || m.IsTombstone() {
		return nil
	}
	for _, containers := range []string{"initContainers", "containers"} {
		names := append(spec[:len(spec):len(spec)], containers)
		each(m.Object().Object, nil, append(names, "image")...)
		each(m.Object().Object, nil, append(names, "env", "value")...)
	}
	each(m.Object().Object, nil, append(spec[:len(spec):len(spec)], "volumes", "image", "reference")...)
	return found
}

// checkImages returns a problem for each image of a manifest without a digest. Images by digest that image-references
// lacks are added to it, so that they are mirrored with the release; added reports whether there were any.
func (b *builder) checkImages(release *Release) (added bool, problems []error) {
	known := map[string]bool{}
	for _, image := range b.images {
		known[image.Image] = true
	}
	for _, m := range release.Payload.All() {
		for _, field := range imagesOf(m) {
			if known[field.image] {
				continue
			}
			if isPinned(field.image) && checkImage(field.image) == nil {
				known[field.image], added = true, true
				b.images[b.nameFor(field.image)] = ResolvedImage{From: field.image, Image: field.image}
				continue
			}
			line, column := m.Places().At(field.path...)
			problems = append(problems,
				problemAt(release.SourceOf(m.Path), line, column, "%s: image %s is not resolved: %s",
					m.ID(), field.image, b.adviceOn(field.image)))
		}
	}
	return added, problems
}

// adviceOn returns what to change so that an image gets a digest.
func (b *builder) adviceOn(image string) string {
	var sharing []string
	for _, name := range sortedKeys(b.images) {
		if payload.RepositoryOf(b.images[name].From) == payload.RepositoryOf(image) {
			sharing = append(sharing, b.images[name].From)
		}
	}
	if len(sharing) > 1 {
		return fmt.Sprintf("%s has several images of its repository, so the tag must be one of theirs: write %s",
			b.config.path, strings.Join(sharing, " or "))
	}
	if checkImage(image) != nil {
		return fmt.Sprintf("write it with its registry and a tag, and add that under images of %s", b.config.path)
	}
	return fmt.Sprintf("add it under images of %s, as in %q", b.config.path, b.nameFor(image)+": "+image)
}

// nameFor returns a name in image-references for an image of a manifest.
func (b *builder) nameFor(image string) string {
	name := strings.ToLower(path.Base(payload.RepositoryOf(image)))
	if _, isTaken := b.images[name]; !isTaken {
		return name
	}
	_, digest, _ := strings.Cut(image, "@sha256:")
	unique := name + "-" + digest[:min(len(digest), 12)]
	return strings.TrimSuffix(unique, "-")
}
