package look

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

// A Tone is the meaning of a state, with a colour and a symbol.
type Tone = draw.Tone

// The tones.
const (
	Good    = draw.Good    // done, ready
	Active  = draw.Active  // being applied
	Waiting = draw.Waiting // applied, and not ready
	Bad     = draw.Bad     // failed, or degraded
	Deleted = draw.Deleted // being deleted
	Later   = draw.Later   // its turn comes later
	Unknown = draw.Unknown
)

// State returns a state in words, with the colour and the symbol of its tone.
func State(tone Tone, text string) g.Node {
	return h.Span(h.Class("state "+string(tone)), symbol(tone), h.Span(Text(text)))
}

// Notice returns text that stands out, such as a problem.
func Notice(tone Tone, content ...g.Node) g.Node {
	return h.Div(h.Class("notice "+string(tone)), symbol(tone), h.Div(content...))
}

// symbol returns the symbol of a tone. Screen readers skip it: the word next to it says the same.
func symbol(tone Tone) g.Node {
	return h.SVG(h.Class("symbol"), g.Attr("viewBox", "0 0 16 16"), h.Aria("hidden", "true"),
		g.El("path", g.Attr("d", tone.Symbol())))
}

// The limits of text from outside: characters in a line, and lines.
const (
	maxCharacters = 2000
	maxLines      = 40
)

// Text returns text from outside as one line, without control characters.
func Text(text string) g.Node { return g.Text(bounded(text)) }

// bounded returns a line without control characters. It may have a megabyte before.
func bounded(text string) string {
	return printable.Line(printable.Shorten(printable.Truncate(text, 4*maxCharacters), maxCharacters))
}

// ID returns the ID of an element on something that others have named: without spaces, and with a limited length.
func ID(prefix string, names ...string) string {
	id := prefix + "-" + url.QueryEscape(strings.Join(names, "/"))
	if len(id) > maxCharacters {
		return fmt.Sprintf("%s-%x", prefix, sha256.Sum256([]byte(id)))
	}
	return id
}

// Lines returns text from outside with its line breaks.
func Lines(text string) g.Node { return linesOf(text, Text) }

func linesOf(text string, show func(string) g.Node) g.Node {
	lines := strings.SplitN(strings.Trim(text, "\r\n"), "\n", maxLines+1)
	if len(lines) > maxLines {
		lines[maxLines] = "…"
	}
	var nodes g.Group
	for i, line := range lines {
		nodes = append(nodes, g.If(i > 0, h.Br()), show(strings.TrimSuffix(line, "\r")))
	}
	return nodes
}

// List returns a list of texts from outside; nothing if there are none.
func List(texts []string) g.Node { return Items(g.Map(texts, Text)...) }

// Code returns a name, path or value from outside.
func Code(text string) g.Node { return h.Code(Text(text)) }

// Fold returns content below a summary that opens and closes it. With an ID, it stays open while a page is updated.
func Fold(isOpen bool, summary g.Node, content ...g.Node) g.Node {
	return h.Details(g.If(isOpen, g.Attr("open")), h.Summary(summary), g.Group(content))
}

// Items returns items below each other; nothing if there are none.
func Items(items ...g.Node) g.Node {
	if len(items) == 0 {
		return nil
	}
	return h.Ul(g.Map(items, func(item g.Node) g.Node { return h.Li(item) }))
}

// Block returns the first lines of a text from outside as they are, and the number of the others. A block with many
// lines scrolls, so it takes the focus.
func Block(text string, most int, attributes ...g.Node) g.Node {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\t", "    "), "\n"), "\n")
	return g.Group{
		h.Pre(h.TabIndex("0"), g.Group(attributes), g.Map(lines[:min(most, len(lines))], func(line string) g.Node {
			return g.Group{Text(line), g.Text("\n")}
		})),
		More(len(lines)-most, "line"),
	}
}

// More returns the number of things that are not shown; nothing if there are none.
func More(count int, thing string) g.Node {
	if count <= 0 {
		return nil
	}
	return h.P(h.Class("more"), g.Text("and "+printable.Count(count, "more "+thing)))
}

// Progress returns a bar with how much is done, and the same in words.
func Progress(label string, done, total int, words string) g.Node {
	return h.Div(h.Class("progress"),
		h.Progress(h.Value(strconv.Itoa(done)), h.Max(strconv.Itoa(max(total, 1))), h.Aria("label", bounded(label))),
		h.Span(Text(words)))
}

// A Fact is a value with its name.
type Fact struct {
	Name  string
	Value g.Node
}

// Facts returns values with their names.
func Facts(all ...Fact) g.Node {
	return h.Dl(h.Class("facts"), g.Map(all, func(f Fact) g.Node {
		return g.Group{h.Dt(g.Text(f.Name)), h.Dd(f.Value)}
	}))
}

// Age returns how long ago a time was. Files have the time itself, too.
func Age(now, moment time.Time) g.Node {
	return timeElement(moment, printable.Age(now, moment), h.Class("exact"))
}

func timeElement(moment time.Time, age string, attributes ...g.Node) g.Node {
	return h.Time(h.DateTime(moment.UTC().Format(time.RFC3339)), g.Group(attributes), g.Text(age))
}

// Command returns a command that helps.
func Command(text string) g.Node { return h.Code(h.Class("command"), Text(text)) }

// A Table is rows below the names of their columns.
type Table struct {
	Caption string // for readers who do not see the table
	Columns []string
	Rows    [][]g.Node
	IDs     []string // of the rows; needed if rows come and go
}

// Node returns the element of a table.
func (t Table) Node() g.Node {
	return h.Div(h.Class("table"), h.TabIndex("0"), h.Role("region"), h.Aria("label", bounded(t.Caption)), h.Table(
		h.Caption(Text(t.Caption)),
		h.THead(h.Tr(g.Map(t.Columns, func(name string) g.Node { return h.Th(h.Scope("col"), g.Text(name)) }))),
		h.TBody(t.rows()),
	))
}

func (t Table) rows() g.Group {
	var rows g.Group
	for i, row := range t.Rows {
		var content g.Group
		for column, cell := range row {
			content = append(content, h.Td(h.Data("label", t.Columns[column]), cell)) // a card has no head
		}
		if t.IDs != nil {
			content = append(content, h.ID(t.IDs[i]))
		}
		rows = append(rows, h.Tr(content))
	}
	return rows
}
