package look

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// A Rendered is a page as HTML, in parts that a live page replaces.
type Rendered struct {
	Title, State string
	Version      string // differs if the page has changed
	parts        []part // the header, and then the sections
}

// A part is an element of a page.
type part struct {
	id, html string
	ageless  string // the HTML without the texts of ages
}

// ages are the texts of ages, which differ each time without a change.
var ages = regexp.MustCompile(`(<time datetime="[^"]*"[^>]*>)[^<]*`)

// exactAges are the elements of Age, with "ago" after them.
var exactAges = regexp.MustCompile(`<time datetime="([^"]*)" class="exact">[^<]*</time>( ago)?`)

// Render returns the page as HTML.
func (p Page) Render() (*Rendered, error) {
	r := &Rendered{Title: p.Title, State: p.State}
	header := h.Header(h.ID("header"), links("Path", p.Trail), links("Pages", p.Menu),
		g.If(p.Note != "", h.P(h.Class("note"), Text(p.Note))))
	if err := r.add("header", header); err != nil {
		return nil, err
	}
	for _, section := range p.Sections {
		if err := r.add(section.ID, section.Node()); err != nil {
			return nil, err
		}
	}
	sum := sha256.New()
	for _, text := range []string{r.Title, r.State} {
		io.WriteString(sum, text+"\x00")
	}
	for _, item := range r.parts {
		io.WriteString(sum, item.id+"\x00"+item.ageless+"\x00")
	}
	r.Version = base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
	return r, nil
}

func (r *Rendered) add(id string, node g.Node) error {
	var text strings.Builder
	err := node.Render(&text)
	r.parts = append(r.parts, part{id, text.String(), ages.ReplaceAllString(text.String(), "$1")})
	return err
}

// Serve writes a page that loads its assets from the server. It keeps itself current by the events of an address;
// without an address, it does not. Now is the time of the cluster, to which ages refer.
func (r *Rendered) Serve(out io.Writer, events string, now time.Time) error {
	head := g.Group{h.Link(h.Rel("stylesheet"), h.Href(StyleAddress))}
	var body g.Group
	if events != "" {
		head = append(head, h.Script(h.Src(ScriptAddress), h.Defer()))
		body = g.Group{
			h.Data("events", events), h.Data("have", r.Version), h.Data("now", now.UTC().Format(time.RFC3339)),
		}
	}
	return r.write(out, head, body)
}

// write writes the document, whose parts are HTML already.
func (r *Rendered) write(out io.Writer, head g.Node, body g.Node) error {
	var sections g.Group
	for _, section := range r.parts[1:] {
		sections = append(sections, g.Raw(section.html))
	}
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.TitleEl(g.Text(documentTitle(r.Title))),
			head,
		),
		h.Body(body,
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to content")),
			g.Raw(r.parts[0].html),
			h.Main(h.ID("main"), h.TabIndex("-1"), h.H1(h.ID("title"), Text(r.Title)), sections),
		),
	)).Render(out)
}

func documentTitle(title string) string { return bounded(title) + " · Runlevel" }

// A change is the difference between two versions of a page, for a live page.
type change struct {
	Title    string            `json:"title"`
	Heading  string            `json:"heading"`
	State    string            `json:"state"`
	Now      time.Time         `json:"now"`      // time of the cluster
	Sections []string          `json:"sections"` // IDs of all sections, in order
	Changed  map[string]string `json:"changed"`  // HTML by ID
}

// Change returns the changes since an earlier version as JSON. The version is nil if it is unknown.
func (r *Rendered) Change(earlier *Rendered, now time.Time) ([]byte, error) {
	known := map[string]string{}
	if earlier != nil {
		for _, item := range earlier.parts {
			known[item.id] = item.ageless
		}
	}
	c := change{Title: documentTitle(r.Title), Heading: bounded(r.Title), State: r.State, Now: now.UTC(),
		Sections: []string{}, Changed: map[string]string{}}
	for i, item := range r.parts {
		if i > 0 {
			c.Sections = append(c.Sections, item.id)
		}
		if before, isKnown := known[item.id]; !isKnown || before != item.ageless {
			c.Changed[item.id] = item.html
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it is no part of a document
	err := encoder.Encode(c)
	return bytes.TrimSpace(text.Bytes()), err
}
