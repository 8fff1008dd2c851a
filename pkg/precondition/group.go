package precondition

import (
	"fmt"
	"path"
	"time"

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

// An Obstacle is an object that may hold up the update.
type Obstacle struct {
	kinds.ID
	Manifest   *payload.Manifest // nil if the release does not have the object
	Why        string            // description of the problem, which does not name the object
	Since      time.Time         // zero if it is not known
	Resolution string
}

// warnOf returns warnings: one for all objects with the same problem.
func warnOf(obstacles []Obstacle) []Finding {
	var findings []Finding
	for _, alike := range grouped(obstacles, func(o Obstacle) string { return o.Why }) {
		var objects []kinds.ID
		var manifests []*payload.Manifest
		since := alike[0].Since
		for _, o := range alike {
			objects = append(objects, o.ID)
			if o.Manifest != nil {
				manifests = append(manifests, o.Manifest)
			}
			if o.Since.Before(since) {
				since = o.Since
			}
		}
		finding := warns(alike[0].Resolution, "%s: %s", name(objects), alike[0].Why)
		finding = finding.withObjects(objects...).withSince(since)
		if len(manifests) > 0 {
			finding.File, finding.Message = manifests[0].Path, files(manifests)+": "+finding.Message
		}
		if !since.IsZero() {
			finding.Message += ", since " + since.UTC().Format(time.RFC3339)
		}
		findings = append(findings, finding)
	}
	return findings
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
