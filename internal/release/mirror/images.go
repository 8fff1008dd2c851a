package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// namesOf returns the images that a release names, with the first place that names each: its image-references, and all
// pods of its manifests, also of those that some clusters leave out. Deleted objects need no images.
func namesOf(p *payload.Payload) map[string]string {
	found := map[string]string{}
	note := func(image, place string) {
		if _, isKnown := found[image]; !isKnown && image != "" {
			found[image] = place
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Images)) {
		note(p.Images[key], "image-references: "+key)
	}
	all := slices.Concat(p.Manifests, p.Tests)
	for _, exclusion := range p.Excluded {
		all = append(all, exclusion.Manifest)
	}
	for _, manifest := range all {
		if manifest.IsTombstone() { // its image may be lost with the object
			continue
		}
		id := manifest.ID()
		for _, image := range imagesOfPods(manifest.Object()) {
			note(image, id.String())
		}
	}
	return found
}

// imagesOfPods returns the images of the containers and volumes of an object's pods.
func imagesOfPods(object *unstructured.Unstructured) (images []string) {
	path := kinds.PodSpec(object.GroupVersionKind().GroupKind())
	if path == nil {
		return nil
	}
	for list, field := range map[string][]string{
		"initContainers": {"image"}, "containers": {"image"}, "ephemeralContainers": {"image"},
		"volumes": {"image", "reference"},
	} {
		items, _, _ := unstructured.NestedSlice(object.Object, append(slices.Clone(path), list)...)
		for _, item := range items {
			if fields, isMap := item.(map[string]any); isMap {
				image, _, _ := unstructured.NestedString(fields, field...)
				images = append(images, image)
			}
		}
	}
	return images
}

// A reference is the name of an image as a container runtime reads it.
type reference struct {
	repository string // registry.example/shop/web, or docker.io/library/nginx
	identifier string // tag or digest
}

// parseReference reads the name of an image. A name without a registry is one of Docker Hub, as for Kubernetes.
func parseReference(image string) (reference, error) {
	parsed, err := name.ParseReference(image)
	if err != nil {
		return reference{}, fmt.Errorf("%q is not an image", image)
	}
	registry := parsed.Context().RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return reference{registry + "/" + parsed.Context().RepositoryStr(), parsed.Identifier()}, nil
}

// isTag reports whether the reference may name another image tomorrow.
func (r reference) isTag() bool { return !strings.Contains(r.identifier, ":") }

// registry returns the host of the repository.
func (r reference) registry() string {
	host, _, _ := strings.Cut(r.repository, "/")
	return host
}

// path returns the repository without its host.
func (r reference) path() string {
	_, path, _ := strings.Cut(r.repository, "/")
	return path
}

func (r reference) String() string {
	if r.isTag() {
		return r.repository + ":" + r.identifier
	}
	return r.repository + "@" + r.identifier
}
