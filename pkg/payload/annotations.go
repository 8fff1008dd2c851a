package payload

import (
	"maps"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/deploymenthook"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// ownDomain is the domain of Runlevel's annotations.
const ownDomain = "runlevel.dev/"

// manifestAnnotations are Runlevel's annotations for manifests, of all packages.
var manifestAnnotations = []string{
	deploymenthook.Annotation, TestAnnotation, RecreateAnnotation, injectAPIServer, ownDomain + "keep",
	ownDomain + "loses-data", ownDomain + "makes", ownDomain + "ready", ownDomain + "references",
}

// writtenAnnotations are those that Runlevel writes on objects: a manifest may be the copy of an object. The last ones
// are settings of the operator: a release may have the ClusterVersion.
var writtenAnnotations = []string{
	deploymenthook.StateAnnotation, ownDomain + "digest", ownDomain + "pieces", ownDomain + "record",
	ownDomain + "release-version", ownDomain + "revision", ownDomain + "settings", ownDomain + "sum",
	ownDomain + "uninstalled", ownDomain + "version",
	ownDomain + "automatic-rollback", ownDomain + "automatic-updates", ownDomain + "report-updates",
	ownDomain + "update-windows", ownDomain + "wariness",
}

// annotationProblems warns of unknown annotations in Runlevel's domain: they are misspelt, or of a newer Runlevel.
func (d *document) annotationProblems(m *Manifest) (problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(m.annotations())) {
		isKnown := slices.Contains(manifestAnnotations, name) || slices.Contains(writtenAnnotations, name)
		if !strings.HasPrefix(name, ownDomain) || isKnown || deploymenthook.IsMisspelt(name) {
			continue // hookProblems reports the latter
		}
		advice := "this runlevel knows " + strings.Join(slices.Sorted(slices.Values(manifestAnnotations)), ", ") +
			"; a newer one may know it"
		if near := printable.Nearest(name, manifestAnnotations, 3); near != "" {
			advice = "write " + near
		}
		problems = append(problems, d.problem(UnknownAnnotation, []string{"metadata", "annotations", name},
			"unknown annotation %s has no effect: %s", name, advice))
	}
	return problems
}
