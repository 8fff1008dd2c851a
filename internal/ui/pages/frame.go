package pages

import (
	g "maragu.dev/gomponents"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// contentOf returns an empty page on a release, with links to the pages above and beside it.
func (s *Site) contentOf(namespace, name, title string) *Content {
	return &Content{
		Page: look.Page{
			Title: title, Trail: append(s.releaseTrail(),
				look.Link{Text: name, Address: s.releaseAddress(namespace, name, "")}),
			Menu: s.releaseMenu(namespace, name),
		},
		Topic: live.Topic{Kind: live.OfRelease, Namespace: namespace, Name: name},
	}
}

// add adds a section to a page.
func (c *Content) add(id, title string, body ...g.Node) {
	c.Sections = append(c.Sections, look.Section{ID: id, Title: title, Body: body})
}

// objectAddress returns the address of the page on an object. Release is nil for an object of no release.
func (s *Site) objectAddress(release *live.Release, id kinds.ID) string {
	query := []string{"kind", id.GroupKind().String(), "namespace", id.Namespace, "name", id.Name}
	if release == nil {
		return s.address("/object", query...)
	}
	return s.releaseAddress(release.Namespace, release.Status.Release, "object", query...)
}

// objectLink returns an object as a link to its page.
func (s *Site) objectLink(release *live.Release, id kinds.ID) g.Node {
	return look.Link{Text: id.String(), Address: s.objectAddress(release, id)}.Node()
}
