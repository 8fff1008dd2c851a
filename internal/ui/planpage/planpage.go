// Package planpage makes the page of a plan, of two releases or of a cluster: counts, warnings, and each object with
// its changed fields.
//
// It compares nothing: package show has the words of a plan for all formats, and masks the values of Secrets.
//
// Start with Page. Sections are its parts, for other pages.
package planpage

import (
	"fmt"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

// Limits of the page of a plan.
const (
	maxOpen    = 100    // objects whose details are open
	maxNamed   = 10_000 // objects
	maxDetails = 10_000 // changed fields, and other details of objects
	maxRemarks = 500

	maxLines = 200   // of a tombstone, or of the difference of a text
	maxValue = 1_500 // characters of a value
)

// Page returns the page of a plan.
func Page(printer show.Printer) look.Page {
	title := printer.Title()
	return look.Page{Title: strings.ToUpper(title[:1]) + title[1:], Sections: Sections(printer)}
}

// Sections returns the counts, the warnings and the objects of a plan.
func Sections(printer show.Printer) []look.Section {
	v := newView(printer)
	all := []look.Section{
		{ID: "summary", Title: "Summary", Body: v.summary()},
		{ID: "attention", Title: "Needs attention", Body: v.attention()},
		{ID: "objects", Title: "Object by object", Body: v.objects()},
	}
	return slices.DeleteFunc(all, func(section look.Section) bool { return len(section.Body) == 0 })
}

// Object returns the changes of the only object of a plan, or that nothing changes.
func Object(printer show.Printer) g.Group {
	v := newView(printer)
	v.isOpen = true
	head, entries := v.noChange(), g.Group{}
	if head == nil {
		head = g.Group{h.P(g.Text("An apply would do this:"))}
	}
	for _, entry := range printer.Plan.Steps {
		switch {
		case entry.IsNoop() && len(entry.Foreign) == 0:
			continue
		case !entry.IsNoop() && printer.Plan.IsEmpty(): // such as a delete that was requested before
			head = nil
		}
		entries = append(entries, v.entry(&show.Group{}, entry))
	}
	return append(head, entries...)
}

// A view is a plan on a page.
type view struct {
	show.Printer
	isOpen    bool
	shown     int // objects so far
	details   int // their details
	cut       int // objects without their details
	cutValues int
}

func newView(printer show.Printer) view {
	printer.MaxValue = maxValue
	return view{Printer: printer}
}

func (v *view) summary() g.Group {
	body := append(g.Group{h.P(h.Strong(look.Text(v.Impact())))}, v.noChange()...)
	if remarks := v.remarks(); len(remarks) > 0 {
		body = append(body, h.P(h.A(h.Href("#attention"),
			look.State(remarks[0].tone, "Needs attention: "+printable.Count(len(remarks), "item")))))
	}
	table := look.Table{Caption: "Objects by action", Columns: []string{"Objects", "Action"}}
	for _, action := range plan.Actions() {
		if count := v.Plan.Counts[action]; count > 0 {
			table.Rows = append(table.Rows, []g.Node{
				g.Text(fmt.Sprint(count)), look.State(toneOf(action), show.CountWords(action, count)),
			})
		}
	}
	if len(table.Rows) > 0 {
		body = append(body, table.Node())
	}
	return body
}

// noChange returns why nothing changes, if nothing does.
func (v *view) noChange() g.Group {
	nothing := v.ReasonOfNoChange()
	if nothing == "" {
		return nil
	}
	return g.Group{h.P(g.Text(strings.ToUpper(nothing[:1]) + nothing[1:] + "."))}
}

// toneOf returns the tone of an action.
func toneOf(action plan.Action) look.Tone {
	switch action {
	case plan.Created, plan.Included, plan.Revived:
		return look.Good
	case plan.Changed:
		return look.Active
	case plan.Deleted, plan.DeletedWith, plan.Pending:
		return look.Deleted
	case plan.Dropped, plan.LeftOut, plan.Left:
		return look.Waiting
	case plan.Rejected:
		return look.Bad
	case plan.NothingToDelete, plan.Unchecked:
		return look.Unknown
	default:
		return look.Later
	}
}

// toneOfWarning returns the tone of a warning: bad if the update fails, or something that it breaks.
func toneOfWarning(warning plan.Warning) look.Tone {
	switch warning.Reason {
	case plan.Refused, plan.VersionRemoved, plan.StillUsed, plan.Contradiction:
		return look.Bad
	case plan.NotChecked:
		return look.Unknown
	default:
		return look.Waiting
	}
}

// A remark is a finding of the gate, an unknown fact, or a warning.
type remark struct {
	tone look.Tone
	text g.Node
}

// remarks returns what needs attention, the worst first.
func (v *view) remarks() []remark {
	var all []remark
	for i, note := range v.Notes() { // those of the gate come first
		tone := look.Waiting
		if gate := v.Plan.Cluster.Gate; i >= len(gate) {
			tone = look.Unknown
		} else if gate[i].Severity == plan.Blocking {
			tone = look.Bad
		}
		all = append(all, remark{tone, look.Text(note)})
	}
	for _, warning := range v.Plan.Warnings {
		all = append(all, remark{toneOfWarning(warning),
			g.Group{look.Code(warning.ID.String()), g.Text(": "), look.Text(warning.Message)}})
	}
	slices.SortStableFunc(all, func(a, b remark) int { return draw.CompareUrgency(a.tone, b.tone) })
	return all
}

// attention lists what needs attention.
func (v *view) attention() g.Group {
	remarks := v.remarks()
	if len(remarks) == 0 {
		return nil
	}
	words := map[look.Tone]string{look.Bad: "problem", look.Waiting: "warning", look.Unknown: "not known"}
	return g.Group{look.Items(g.Map(remarks[:min(len(remarks), maxRemarks)], func(r remark) g.Node {
		return g.Group{look.State(r.tone, words[r.tone]), g.Text(" "), r.text}
	})...), look.More(len(remarks)-maxRemarks, "warning")}
}

// objects returns the objects by level and component.
func (v *view) objects() g.Group {
	var body g.Group
	groups, total := v.Groups(), 0
	for _, group := range groups {
		total += len(group.Entries)
	}
	v.isOpen = total <= maxOpen
	for _, group := range groups {
		if len(group.Entries) > 0 && v.shown < maxNamed {
			body = append(body, v.group(group))
		}
	}
	return append(v.leftOut(total-maxNamed), body...)
}

// leftOut returns what is not on the page, and the command that shows it.
func (v *view) leftOut(more int) g.Group {
	var parts []string
	if v.cut > 0 {
		parts = append(parts, "the details of "+printable.Count(v.cut, "object"))
	}
	if more > 0 {
		parts = append(parts, printable.Count(more, "more object"))
	}
	command := v.Command
	if v.cutValues > 0 {
		parts = append(parts, "parts of "+printable.Count(v.cutValues, "long value"))
		command += " --all"
	}
	if len(parts) == 0 {
		return nil
	}
	return g.Group{h.P(g.Text("Left out: "+strings.Join(parts, ", ")+". This command shows all: "),
		look.Command(command))}
}

func (v *view) group(group *show.Group) g.Node {
	var content g.Group
	if group.IsGone {
		content = append(content, h.P(g.Text("No longer in the release.")))
	}
	if group.From != "" {
		content = append(content, h.P(g.Text("All objects come from "), look.Code(group.From), g.Text(".")))
	}
	var items []g.Node
	for _, entry := range group.Entries {
		if v.shown++; v.shown > maxNamed {
			break
		}
		items = append(items, v.entry(group, entry))
	}
	isOpen := v.isOpen || slices.ContainsFunc(group.Entries, needsAttention)
	return look.Fold(isOpen, g.Group{h.H3(look.Text(group.Title)), g.Text(" " + group.Summary())},
		append(content, look.Items(items...))...)
}

// needsAttention reports whether an object is deleted, stays behind, or is refused.
func needsAttention(entry plan.ObjectPlan) bool {
	return slices.Contains([]look.Tone{look.Deleted, look.Waiting, look.Bad}, toneOf(entry.Action)) ||
		len(entry.Refused()) > 0
}

func (v *view) entry(group *show.Group, entry plan.ObjectPlan) g.Node {
	head := g.Group{look.State(toneOf(entry.Action), string(entry.Action)), g.Text(" "), look.Code(entry.ID.String())}
	if v.details > maxDetails {
		v.cut++
		return head
	}
	details := v.Details(group, entry, v.Limit())
	if details.Why != "" {
		head = append(head, g.Text(": "), look.Text(details.Why))
	}
	if place := entry.Place(); place.File != "" {
		head = append(head, g.Text(" "), h.Small(look.Text(fmt.Sprintf("%s:%d", place.File, place.Line))))
	}
	items := g.Map(details.Hooks, look.Text)
	for _, change := range details.Changes {
		items = append(items, difference(change))
		v.details += (len(change.Old) + len(change.New)) / maxValue // long values take the room of others
		if change.IsCut {
			v.cutValues++
		}
	}
	items = append(items, g.Map(details.Foreign, look.Text)...)
	if details.Rest != "" {
		items = append(items, g.Text(details.Rest))
	}
	if details.Tombstone != "" {
		items = append(items, g.Group{
			g.Text("to delete it, put this into "), look.Code(details.File), g.Text(":"),
			look.Block(details.Tombstone, maxLines),
		})
	}
	if len(items) == 0 {
		return head
	}
	v.details += len(items)
	return look.Fold(v.isOpen || needsAttention(entry), head, look.Items(items...))
}

// difference returns the change of a field, with the old value above the new one.
func difference(change show.Difference) g.Node {
	head := g.Group{look.Code(change.Path)}
	if change.Remark != "" {
		head = append(head, g.Text(" ("), look.Text(change.Remark), g.Text(")"))
	}
	if len(change.Lines) > 0 {
		return append(head, g.Text(": "), look.Text(change.Old+" → "+change.New), diff(change.Lines))
	}
	return append(head, diff([]string{"- " + change.Old, "+ " + change.New}))
}

// diff returns lines that begin with "-" or "+", and others.
func diff(lines []string) g.Node {
	classes := map[byte]string{'-': "removed", '+': "added"}
	block := h.Pre(h.Class("diff"), g.Map(lines[:min(len(lines), maxLines)], func(line string) g.Node {
		return h.Span(h.Class(classes[line[0]]), look.Text(line), g.Text("\n"))
	}))
	return g.Group{block, look.More(len(lines)-maxLines, "line")}
}
