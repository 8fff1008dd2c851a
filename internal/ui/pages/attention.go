package pages

import (
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// How many objects a section shows: in full, and as rows of a table.
const (
	maxItems = 12
	maxRows  = 200
)

// deletedSince is the reason why an object of a complete release is missing.
const deletedSince = "deleted since it was applied"

// objectTones are the tones of the states of objects.
var objectTones = map[why.ObjectState]look.Tone{
	why.Ready: look.Good, why.Deleted: look.Good, why.Absent: look.Bad, why.NotReady: look.Waiting,
	why.Outdated: look.Bad, why.Changed: look.Waiting, why.Terminating: look.Deleted, why.Kept: look.Deleted,
	why.Blocked: look.Later, why.Unknown: look.Unknown,
}

// link returns an object as a link to its page.
func (v releaseView) link(id kinds.ID) g.Node { return v.site.objectLink(v.Release, id) }

// command returns a command on the release.
func (v releaseView) command(words ...string) g.Node {
	return command(v.Namespace, append(words, v.Status.Release)...)
}

// isFailure reports whether waiting does not help: the apply has failed at the object, or the object has failed.
func (v releaseView) isFailure(a *why.Answer) bool {
	if v.Status.Progress == nil {
		return false
	}
	for _, failure := range v.Status.Progress.Failures {
		if failure.Object != nil && *failure.Object == a.Object {
			return true
		}
	}
	return false
}

// attention returns the problems: why no process keeps the release in place, and objects, the worst
// first. Deletes, changes and objects whose turn comes later have sections of their own.
func (v releaseView) attention() look.Section {
	var items g.Group
	if n := v.Status.NotKept; n != nil {
		since := g.Node(nil)
		if n.Since != nil {
			since = g.Group{g.Text(", for "), look.Age(v.Status.Time, *n.Since)}
		}
		items = append(items, h.Li(h.ID("not-kept"), h.H3(g.Text("No process keeps the release in place"), since),
			h.P(look.Prose(v.Status.Time, n.Message)), look.List(n.Pods),
			h.P(g.Text("To resolve it: "), advice(n.Resolution))))
	}
	var objects []*why.Answer
	for _, id := range v.Status.MissingObjects {
		objects = append(objects,
			&why.Answer{Object: id, State: why.Absent, Messages: []why.Message{{Text: deletedSince}}})
	}
	objects = slices.DeleteFunc(append(objects, v.Status.Objects...), func(a *why.Answer) bool {
		return a.State == why.Blocked || a.State == why.Changed || v.isPendingDelete(a.Object)
	})
	for _, answer := range objects[:min(maxItems, len(objects))] {
		items = append(items, v.item(answer))
	}
	if len(items) == 0 {
		return look.Section{}
	}
	body := g.Group{h.Ol(h.Class("items"), items)}
	if rest := len(objects) - maxItems; rest > 0 {
		body = append(body, h.P(look.Link{Text: printable.Count(rest, "more object"),
			Address: v.site.releaseAddress(v.Namespace, v.Status.Release, "objects")}.Node()))
	}
	return look.Section{ID: "attention", Title: "What needs attention", Body: body}
}

// item returns an object with its state, the reasons and the command that helps.
func (v releaseView) item(a *why.Answer) g.Node {
	tone, word := objectTones[a.State], a.State.Text()
	if v.isFailure(a) {
		tone, word = look.Bad, "failed: "+word
	}
	title := g.Group{v.link(a.Object), g.Text(" "), look.State(tone, word)}
	if a.Since != nil {
		title = append(title, g.Text(", for "), look.Age(v.Status.Time, *a.Since))
	}
	place := g.Node(nil)
	if a.Node != "" {
		place = h.P(look.Text(strings.Trim(a.Node+", "+a.File, ", ")))
	}
	return h.Li(h.ID(objectID("item", a.Object)), h.H3(title), v.messages(a.Messages), place,
		h.P(g.Text("To find out more: "), whyCommand(v.Namespace, a.Object)))
}
