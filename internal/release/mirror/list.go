package mirror

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// A ListFormat is the format of a list of images for another tool.
type ListFormat string

// The formats of lists.
const (
	Txt      ListFormat = "txt"      // an image each line
	Hauler   ListFormat = "hauler"   // a manifest of Hauler
	ImageSet ListFormat = "imageset" // an ImageSetConfiguration of oc-mirror
)

// references returns all images of releases, and then the releases, of which the newest is the last.
func references(releases []*Release) (all []reference) {
	add := func(image reference) {
		all = append(slices.DeleteFunc(all, func(other reference) bool { return other == image }), image)
	}
	for _, release := range releases {
		for _, image := range release.images {
			add(image)
		}
	}
	for _, release := range releases {
		if release.image != (reference{}) {
			add(release.image)
		}
	}
	return all
}

// List returns the images of releases, and the releases themselves, as a list for another tool.
func List(releases []*Release, format ListFormat) ([]byte, error) {
	type item struct {
		Name string `json:"name"`
	}
	var names []string
	var items []item
	for _, image := range references(releases) {
		names, items = append(names, image.String()), append(items, item{image.String()})
	}
	switch format {
	case Hauler:
		return yaml.Marshal(map[string]any{
			"apiVersion": "content.hauler.cattle.io/v1", "kind": "Images",
			"metadata": map[string]any{"name": "release"},
			"spec":     map[string]any{"images": items},
		})
	case ImageSet:
		return yaml.Marshal(map[string]any{
			"apiVersion": "mirror.openshift.io/v2alpha1", "kind": "ImageSetConfiguration",
			"mirror": map[string]any{"additionalImages": items},
		})
	default:
		return []byte(strings.Join(names, "\n") + "\n"), nil
	}
}
