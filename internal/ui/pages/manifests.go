package pages

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of the shown part of a manifest or a log.
const (
	maxManifest = 2000 // lines
	maxLine     = 1000 // bytes
)

// liveManifest returns the object of the cluster, without managedFields and the values of Secrets.
func (v *objectView) liveManifest() g.Group {
	if v.live == nil {
		return sentence("The cluster does not have it.")
	}
	shown := maps.Clone(v.live.Object)
	metadata, _ := shown["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "managedFields")
	shown["metadata"] = metadata
	return g.Group{foldedManifest("live-manifest", "Manifest", shown)}
}

// releaseManifest returns the manifest of the release, with its place.
func (v *objectView) releaseManifest() g.Group {
	switch {
	case v.release == nil:
		return nil
	case v.release.Payload == nil:
		return sentence("The files of the release can't be read: " + cmp.Or(v.release.Unread, "no copy is stored"))
	case v.manifest == nil:
		return sentence("The release does not have it.")
	}
	place := fmt.Sprintf("%s:%d", v.manifest.Path, v.manifest.Line)
	return g.Group{foldedManifest("release-manifest", place, v.manifest.Object().Object)}
}

// foldedManifest returns an object as YAML, folded, without the values of Secrets.
func foldedManifest(id, title string, object map[string]any) g.Node {
	text, err := printable.YAML(fields.Mask(object))
	if err != nil {
		text = []byte(err.Error())
	}
	return h.Details(h.ID(id), h.Summary(look.Text(title)),
		block(title, strings.Split(string(text), "\n"), maxManifest))
}

// block returns the first lines of a text as they are, and the number of the others.
func block(label string, lines []string, most int) g.Node {
	var text strings.Builder
	for _, line := range lines[:min(most, len(lines))] {
		text.WriteString(printable.Line(printable.Truncate(line, maxLine)) + "\n")
	}
	pre := h.Pre(h.TabIndex("0"), h.Role("region"), h.Aria("label", printable.Line(label)),
		h.Code(g.Text(strings.TrimRight(text.String(), "\n"))))
	if more := len(lines) - most; more > 0 {
		return g.Group{pre, h.P(g.Text("and " + printable.Count(more, "more line")))}
	}
	return pre
}
