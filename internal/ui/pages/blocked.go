package pages

import (
	"cmp"
	"slices"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// A releasePart is an unfinished part of the release, such as "level 20, web".
type releasePart struct {
	name    string
	after   []string      // the parts right before it
	blocked []*why.Answer // objects that the apply has not reached
	others  []*why.Answer // objects that wait, or have failed
}

// partsOf returns the parts of objects that are not done, by name, and in the order of the objects.
func partsOf(objects []*why.Answer) (map[string]*releasePart, []*releasePart) {
	parts, order := map[string]*releasePart{}, []*releasePart(nil)
	for _, a := range objects {
		part := parts[a.Node]
		if part == nil {
			part = &releasePart{name: a.Node}
			parts[a.Node] = part
			order = append(order, part)
		}
		if a.State != why.Blocked {
			part.others = append(part.others, a)
			continue
		}
		part.blocked = append(part.blocked, a)
		for _, earlier := range a.After {
			if !slices.Contains(part.after, earlier) {
				part.after = append(part.after, earlier)
			}
		}
	}
	return parts, order
}

// holders returns the objects that a part waits for in the end.
func (p *releasePart) holders(parts map[string]*releasePart) []*why.Answer {
	var found []*why.Answer
	seen := map[string]bool{p.name: true}
	for next := []*releasePart{p}; len(next) > 0; next = next[1:] {
		found = append(found, next[0].others...)
		for _, earlier := range next[0].after {
			if parts[earlier] != nil && !seen[earlier] {
				seen[earlier] = true
				next = append(next, parts[earlier])
			}
		}
	}
	return found
}

// blocked returns the parts whose turn comes later, and what holds up each in the end.
func (v releaseView) blocked() look.Section {
	parts, order := partsOf(v.Status.Objects)
	order = slices.DeleteFunc(order, func(part *releasePart) bool { return len(part.blocked) == 0 })
	if len(order) == 0 {
		return look.Section{}
	}
	table := look.Table{Caption: "Parts of the release whose turn comes later",
		Columns: []string{"Part", "Objects", "Comes after", "Held up by"}}
	for _, part := range order[:min(maxRows, len(order))] {
		name := cmp.Or(part.name, "files without a level")
		var objects g.Group
		for _, a := range part.blocked[:min(maxItems, len(part.blocked))] {
			objects = append(objects, h.Li(v.link(a.Object), v.messages(a.Messages)))
		}
		table.IDs = append(table.IDs, look.ID("part", name))
		table.Rows = append(table.Rows, []g.Node{
			look.Text(name),
			look.Fold(look.ID("objects", name), printable.Count(len(part.blocked), "object"),
				g.Group{h.Ul(objects), v.more(len(part.blocked) - len(objects))}),
			look.Text(cmp.Or(printable.Few(part.after, maxNamed), "-")),
			v.holderList(part.holders(parts)),
		})
	}
	return look.Section{ID: "blocked", Title: "Waiting for their turn", Body: g.Group{table.Node()}}
}

// holderList returns objects with the reasons why they are not done.
func (v releaseView) holderList(objects []*why.Answer) g.Node {
	if len(objects) == 0 {
		return g.Text("The objects before it are being applied: none waits or has failed.")
	}
	var items g.Group
	for _, a := range objects[:min(maxNamed, len(objects))] {
		since := g.Node(nil)
		if a.Since != nil {
			since = g.Group{g.Text(", for "), look.Age(v.Status.Time, *a.Since)}
		}
		items = append(items, h.Li(v.link(a.Object), since, g.Text(": "), look.Text(cmp.Or(a.For, a.State.Text()))))
	}
	if more := len(objects) - len(items); more > 0 {
		items = append(items, h.Li(g.Textf("and %d more", more)))
	}
	return h.Ul(items)
}
