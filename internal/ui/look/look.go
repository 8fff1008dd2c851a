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

	"github.com/runlevel/runlevel/pkg/graph/draw"
)

var (
	//go:embed style.css
	rules string
	// Style is the stylesheet of all pages.
	Style = draw.Stylesheet() + rules
	// Script keeps a page current.
	//go:embed page.js
	Script string
)

// A Page is an HTML document.
type Page struct {
	Title    string
	State    string // state of the release in a short line, which a live page announces when it changes
	Note     string // a line above the title, for example the time of an export
	Trail    []Link // the pages above this one
	Menu     []Link // pages beside this one
	Sections []Section
}

// A Link is a link to another page. Without an address, it is only text.
type Link struct{ Text, Address string }

// maxAddress limits addresses. Nothing has a longer name.
const maxAddress = 4000

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

// WriteFile writes a page that needs no other file. It may be read days later, so ages have their times.
func (p Page) WriteFile(out io.Writer) error {
	rendered, err := p.Render()
	if err != nil {
		return err
	}
	for i, item := range rendered.parts {
		rendered.parts[i].html = exactAges.ReplaceAllString(item.html, "$0 <small>($1)</small>")
	}
	return rendered.write(out, h.StyleEl(g.Raw(Style)), nil)
}

// Node returns the element of a section.
func (s Section) Node() g.Node {
	return h.Section(h.ID(s.ID), g.If(s.Title != "", h.H2(Text(s.Title))), s.Body)
}

func links(label string, all []Link) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Nav(h.Aria("label", label), h.Ul(g.Map(all, func(l Link) g.Node { return h.Li(l.Node()) })))
}

// Node returns the element of a link.
func (l Link) Node() g.Node {
	if l.Address == "" || len(l.Address) > maxAddress {
		return Text(l.Text)
	}
	return h.A(h.Href(l.Address), Text(l.Text))
}
