package precondition

import (
	"fmt"
	"path"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// grouped returns groups of items with the same key, ordered by their first items: all objects with one cause have one
// finding.
func grouped[T any, K comparable](all []T, key func(T) K) [][]T {
	var groups [][]T
	places := map[K]int{}
	for _, item := range all {
		index, isKnown := places[key(item)]
		if !isKnown {
			index = len(groups)
			places[key(item)] = index
			groups = append(groups, nil)
		}
		groups[index] = append(groups[index], item)
	}
	return groups
}

// ids returns the IDs of manifests.
func ids(manifests []*payload.Manifest) []kinds.ID {
	var objects []kinds.ID
	for _, m := range manifests {
		objects = append(objects, m.ID())
	}
	return objects
}

// name returns the first of some objects, and the number of others.
func name(objects []kinds.ID) string {
	if more := len(objects) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", objects[0], more)
	}
	return objects[0].String()
}

// files returns the first file of some manifests, and the number of others.
func files(manifests []*payload.Manifest) string {
	text := printable.Line(path.Base(manifests[0].Path))
	if more := len(manifests) - 1; more > 0 {
		text += " and " + printable.Count(more, "more manifest")
	}
	return text
}

// either returns the singular or the plural form.
func either(count int, name, several string) string {
	if count == 1 {
		return name
	}
	return several
}
