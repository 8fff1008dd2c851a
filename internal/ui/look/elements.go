package look

import (
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Tone is what a state means: its colour and its symbol.
type Tone string

// The tones.
const (
	Good    Tone = "good"    // done, ready
	Active  Tone = "active"  // being applied
	Waiting Tone = "waiting" // applied, and not ready
	Bad     Tone = "bad"     // failed, or degraded
	Deleted Tone = "deleted" // being deleted
	Later   Tone = "later"   // its turn comes later
	Unknown Tone = "unknown"
)

// State returns a state in words, with the colour and the symbol of its tone.
func State(tone Tone, text string) g.Node {
	return h.Span(h.Class("state "+string(tone)), Text(text))
}

// Text returns text from outside, without control characters.
func Text(text string) g.Node { return g.Text(printable.Line(text)) }

// Age returns how long ago a time was.
func Age(now, moment time.Time) g.Node {
	return h.Time(h.DateTime(moment.UTC().Format(time.RFC3339)), g.Text(printable.Age(now, moment)))
}

// Command returns a command that helps.
func Command(text string) g.Node { return h.Code(h.Class("command"), Text(text)) }

// A Table is rows below the names of their columns.
type Table struct {
	Caption string // for readers who do not see the table
	Columns []string
	Rows    [][]g.Node
}

// Node returns the element of a table.
func (t Table) Node() g.Node {
	return h.Div(h.Class("table"), h.TabIndex("0"), h.Role("region"), h.Aria("label", t.Caption), h.Table(
		h.Caption(g.Text(t.Caption)),
		h.THead(h.Tr(g.Map(t.Columns, func(name string) g.Node { return h.Th(h.Scope("col"), g.Text(name)) }))),
		h.TBody(g.Map(t.Rows, func(row []g.Node) g.Node {
			return h.Tr(g.Map(row, func(cell g.Node) g.Node { return h.Td(cell) }))
		})),
	))
}
