package pages

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// A filter is a column of a table, of which a query may choose a value.
type filter struct {
	name   string
	values []string // of each row
}

// filterSection returns the form that chooses rows by words and values. In an export, no server answers it.
func (s *Site) filterSection(address string, query url.Values, filters ...filter) look.Section {
	section := look.Section{ID: "filter"}
	if s.Find != nil {
		return section
	}
	form := g.Group{h.Label(g.Text("Words"),
		h.Input(h.ID("q"), h.Name("q"), h.Type("search"), h.Value(query.Get("q"))))}
	for _, f := range filters {
		chosen := query.Get(f.name)
		counts := map[string]int{chosen: 0}
		for _, value := range f.values {
			counts[value]++
		}
		delete(counts, "")
		if len(counts) == 0 {
			continue
		}
		options := g.Group{h.Option(h.Value(""), g.Text("any"))}
		for _, value := range slices.Sorted(maps.Keys(counts)) {
			options = append(options, h.Option(h.Value(value), g.If(value == chosen, h.Selected()), look.Text(value),
				g.Textf(" (%d)", counts[value])))
		}
		form = append(form, h.Label(g.Text(strings.ToUpper(f.name[:1])+f.name[1:]),
			h.Select(h.ID(f.name), h.Name(f.name), options)))
	}
	section.Body = g.Group{h.Form(h.Method("get"), h.Action(address), h.Role("search"), form,
		h.Button(h.Type("submit"), g.Text("Filter")))}
	return section
}

// hasWords reports whether texts have all words of a query.
func hasWords(query url.Values, texts ...string) bool {
	text := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(query.Get("q"))), func(word string) bool {
		return !strings.Contains(text, word)
	})
}

// noMatch returns that a query chooses none of the rows, with a link to all.
func noMatch(total int, thing, address string) g.Node {
	return h.P(g.Textf("None of the %s matches the filter. ", printable.Count(total, thing)),
		look.Link{Text: "Show all " + thing + "s", Address: address}.Node())
}
