package pages

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// isPendingDelete reports whether the delete of an object is pending.
func (v releaseView) isPendingDelete(id kinds.ID) bool {
	return slices.ContainsFunc(v.Status.Deletes, func(d state.PendingDelete) bool { return d.Object == id })
}

// deletes returns the pending deletes, and what holds them.
func (v releaseView) deletes() look.Section {
	if len(v.Status.Deletes) == 0 {
		return look.Section{}
	}
	columns := []string{"Object", "Requested by", "Requested", "State", "Held by"}
	return look.Section{ID: "deletes", Title: "Pending deletes", Body: g.Group{
		tableOf("Pending deletes and what holds them", columns,
			v.Status.Deletes, func(pending state.PendingDelete) (string, []g.Node) {
				client := cmp.Or(pending.Version, "the release")
				if pending.IsForeign {
					client = "another client"
				}
				return objectID("delete", pending.Object), []g.Node{
					v.link(pending.Object), look.Text(client),
					g.Group{look.Age(v.Status.Time, pending.RequestedAt), g.Text(" ago")},
					look.State(look.Deleted, string(pending.State)), v.deleteReasons(pending),
				}
			}),
	}}
}

// deleteReasons returns who has to remove the finalizers of an object, its remaining content, and the command that
// helps.
func (v releaseView) deleteReasons(pending state.PendingDelete) g.Node {
	reasons := g.Node(h.P(look.Prose(v.Status.Time, pending.Message)))
	for _, answer := range v.Status.Objects {
		if answer.Object == pending.Object {
			reasons = v.messages(answer.Messages)
		}
	}
	return g.Group{reasons, h.P(whyCommand(v.Namespace, pending.Object))}
}

// drift returns the objects that differ from the release, and the number of missing objects whose names are not known.
func (v releaseView) drift() look.Section {
	changed := slices.DeleteFunc(slices.Clone(v.Status.Objects), func(a *why.Answer) bool {
		return a.State != why.Changed
	})
	unnamed := v.Status.Missing - len(v.Status.MissingObjects)
	if len(changed) == 0 && unnamed <= 0 {
		return look.Section{}
	}
	repair := g.Node(nil)
	table := tableOf("Objects that differ from the release", []string{"Object", "State", "Why"}, changed,
		func(a *why.Answer) (string, []g.Node) {
			var reasons []why.Message
			for _, message := range a.Messages {
				if remedy, isRemedy := strings.CutPrefix(message.Text, "to repair it, "); isRemedy {
					repair = h.P(g.Text("To repair them: "), v.prose(remedy))
					continue
				}
				message.Text, _, _ = strings.Cut(message.Text, ": see runlevel diff")
				reasons = append(reasons, message)
			}
			return objectID("changed", a.Object), []g.Node{
				v.link(a.Object), look.State(look.Waiting, a.State.Text()), v.messages(reasons),
			}
		})
	body := g.Group{g.If(len(changed) > 0, table)}
	if unnamed > 0 {
		body = append(body, h.P(g.Text(printable.Count(unnamed, "object")+
			" deleted since the release was applied; the names are not known.")))
	}
	return look.Section{ID: "drift", Title: "Differences from the release",
		Body: append(body, h.P(g.Text("To see the fields: "), v.command("diff")), repair)}
}

// repairs returns the repairs since the version was begun.
func (v releaseView) repairs() look.Section {
	if v.Status.Repairs == nil {
		return look.Section{}
	}
	table := look.Table{Caption: "Latest repairs", Columns: []string{"Object", "Repairs", "Last", "What"}}
	for _, repair := range v.Status.Repairs.Latest {
		what := g.Group{look.Lines(repair.Message)}
		if event, isContested := v.contested[repair.ID]; isContested {
			what = append(what, h.P(look.State(look.Bad, "contested"), g.Text(" "),
				look.Age(v.Status.Time, event.Time), g.Text(" ago: "), look.Lines(event.Message)))
		}
		table.IDs = append(table.IDs, objectID("repair", repair.ID))
		table.Rows = append(table.Rows, []g.Node{
			v.link(repair.ID), g.Text(strconv.Itoa(repair.Count)),
			g.Group{look.Age(v.Status.Time, repair.Time.Time), g.Text(" ago")}, what,
		})
	}
	return look.Section{ID: "repairs", Title: "Repairs", Body: g.Group{
		h.P(g.Text("Repaired since the version was begun: " + printable.Count(v.Status.Repairs.Count, "time") + ".")),
		table.Node(),
	}}
}

// gates returns what blocks the requested version and the next minor version, and who can resolve it.
func (v releaseView) gates() look.Section {
	section := look.Section{ID: "gate", Title: "Gate"}
	if len(v.Status.Gates) == 0 {
		section.Body = g.Group{h.P(g.Text("No known problem blocks the next version. To check one: "),
			v.gateCommand())}
		return section
	}
	var items g.Group
	for _, gate := range v.Status.Gates[:min(maxItems, len(v.Status.Gates))] {
		blocks := "blocks the next minor version"
		if gate.Requested {
			blocks = "blocks the requested version"
		}
		title := g.Group{look.Text(cmp.Or(gate.Reason, "Not upgradeable")), g.Text(" "), look.State(look.Bad, blocks)}
		if gate.Since != nil && !gate.Since.IsZero() {
			title = append(title, g.Text(", for "), look.Age(v.Status.Time, *gate.Since))
		}
		items = append(items, h.Li(h.H3(title), h.P(look.Prose(v.Status.Time, gate.Message))))
	}
	section.Body = g.Group{h.Ol(h.Class("items"), items), look.More(len(v.Status.Gates)-len(items), "finding")}
	if len(v.Status.Deletes) > 0 {
		section.Body = append(section.Body, h.P(g.Text("The holders of "),
			h.A(h.Href("#deletes"), g.Text("pending deletes")), g.Text(" can resolve them.")))
	}
	section.Body = append(section.Body,
		h.P(g.Text("To check a version, with what resolves each finding: "), v.gateCommand()))
	return section
}

func (v releaseView) gateCommand() g.Node {
	return command(v.Namespace, "gate", "SOURCE", "--name", v.Status.Release)
}
