// Package look has what all pages share: the document around them, its stylesheet and script, and elements such as
// tables, states and ages. The same elements serve the live page, its export, and the reports of other verbs.
//
// It knows no cluster and no release, and every text is escaped. Pages are written with gomponents: html/template calls
// methods by name, so that the linker would keep all methods of the program, which is a third of its size.
//
// Start with Page.
package look

import (
	_ "embed"
	"io"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Style is the stylesheet of all pages, and Script keeps a page current.
var (
	//go:embed style.css
	Style string
	//go:embed page.js
	Script string
)

// A Page is an HTML document.
type Page struct {
	Title    string
	Trail    []Link // the pages above this one
	Menu     []Link // pages beside this one
	Sections []Section
}

// A Link is a link to another page. Without an address, it is only text.
type Link struct{ Text, Address string }

// A Section is a part of a page. When its content changes, a live page replaces it.
type Section struct {
	ID    string // unique in the page
	Title string // the heading
	Body  g.Group
}

// The addresses of the assets of a served page.
const (
	StyleAddress  = "/assets/style.css"
	ScriptAddress = "/assets/page.js"
)

// Serve writes a page that loads its assets from the server, and keeps itself current by the events of an address.
// Without an address, it does not.
func (p Page) Serve(out io.Writer, events string) error {
	head := g.Group{h.Link(h.Rel("stylesheet"), h.Href(StyleAddress))}
	if events != "" {
		head = append(head, h.Script(h.Src(ScriptAddress), h.Defer()))
	}
	return p.write(out, head, h.Data("events", events))
}

// WriteFile writes a page that needs no other file.
func (p Page) WriteFile(out io.Writer) error {
	return p.write(out, g.Group{h.StyleEl(g.Raw(Style))}, nil)
}

func (p Page) write(out io.Writer, head g.Group, body g.Node) error {
	var sections g.Group
	for _, section := range p.Sections {
		sections = append(sections, section.Node())
	}
	document := h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Text(p.Title+" · Runlevel")),
			head,
		),
		h.Body(body,
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to content")),
			h.Header(links("Path", p.Trail), links("Pages", p.Menu)),
			h.Main(h.ID("main"), h.TabIndex("-1"), h.H1(g.Text(p.Title)), sections),
		),
	))
	return document.Render(out)
}

// Node returns the element of a section.
func (s Section) Node() g.Node {
	return h.Section(h.ID(s.ID), g.If(s.Title != "", h.H2(g.Text(s.Title))), s.Body)
}

func links(label string, all []Link) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Nav(h.Aria("label", label), h.Ul(g.Map(all, func(l Link) g.Node { return h.Li(l.Node()) })))
}

// Node returns the element of a link.
func (l Link) Node() g.Node {
	if l.Address == "" {
		return g.Text(l.Text)
	}
	return h.A(h.Href(l.Address), g.Text(l.Text))
}
