package pages

import (
	"cmp"
	"fmt"
	"maps"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// maxManifest limits the lines of a manifest.
const maxManifest = 2000

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
	return look.Fold(false, look.Text(title), h.ID(id), block(title, string(text), maxManifest))
}

// block returns the first lines of a text as they are, with a name.
func block(name, text string, most int) g.Node {
	return look.Block(text, most, h.Role("region"), h.Aria("label", printable.Line(name)))
}
