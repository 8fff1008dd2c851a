package look

import (
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// Code returns a name, path or value from outside.
func Code(text string) g.Node { return h.Code(Text(text)) }

// Foldable returns content below a summary that opens and closes it.
func Foldable(isOpen bool, summary g.Node, content ...g.Node) g.Node {
	return h.Details(g.If(isOpen, g.Attr("open")), h.Summary(summary), g.Group(content))
}

// Items returns items below each other; nothing if there are none.
func Items(items ...g.Node) g.Node {
	if len(items) == 0 {
		return nil
	}
	return h.Ul(g.Map(items, func(item g.Node) g.Node { return h.Li(item) }))
}

// Texts returns texts from outside as items of a list.
func Texts(texts []string) []g.Node {
	return g.Map(texts, Text)
}

// Block returns the first lines of a text from outside as they are, and the number of the others. A block with many
// lines scrolls, so it takes the focus.
func Block(text string, most int, attributes ...g.Node) g.Node {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\t", "    "), "\n"), "\n")
	more := len(lines) - most
	return g.Group{
		h.Pre(h.TabIndex("0"), g.Group(attributes), g.Map(lines[:min(most, len(lines))], func(line string) g.Node {
			return g.Group{Text(line), g.Text("\n")}
		})),
		g.If(more > 0, More(more, "line")),
	}
}

// More returns the number of things that are not shown.
func More(count int, thing string) g.Node {
	return h.P(h.Class("more"), g.Text("and "+printable.Count(count, "more "+thing)))
}
