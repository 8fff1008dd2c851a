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

// List returns the images of releases, and the releases themselves, as a list for another tool.
func List(releases []*Release, format ListFormat) ([]byte, error) {
	type item struct {
		Name string `json:"name"`
	}
	var names []string
	var items []item
	for _, release := range releases {
		for _, image := range release.references() {
			if name := image.String(); !slices.Contains(names, name) {
				names, items = append(names, name), append(items, item{name})
			}
		}
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
