package main

import (
	"fmt"
	"html"
	"html/template"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/yuin/goldmark"
	highlighting "github.com/yuin/goldmark-highlighting/v2"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM, highlighting.NewHighlighting(
	highlighting.WithFormatOptions(chromahtml.WithClasses(true)),
)))

// parse sets the document, the title, the summary and the contents of a page.
func (p *page) parse() {
	source := []byte(p.text)
	p.document = markdown.Parser().Parse(text.NewReader(source))
	used := map[string]bool{}
	for node := p.document.FirstChild(); node != nil; node = node.NextSibling() {
		words := plainText(node, source)
		if node.Kind() == ast.KindParagraph && p.Summary == "" {
			p.Summary, _, _ = strings.Cut(words, ". ")
		}
		title, ok := node.(*ast.Heading)
		if !ok {
			continue
		}
		id := slug(words)
		for i := 1; used[id]; i++ {
			id = fmt.Sprintf("%s-%d", slug(words), i)
		}
		used[id] = true
		title.SetAttributeString("id", []byte(id))
		if title.Level == 1 {
			p.Title = words
			continue
		}
		if title.Level == 2 {
			p.Contents = append(p.Contents, heading{words, id})
		}
		anchor := ast.NewString(fmt.Appendf(nil,
			` <a class="anchor" href="#%s" aria-label="Link to: %s" data-pagefind-ignore>#</a>`, id, html.EscapeString(words)))
		anchor.SetCode(true) // is HTML already
		title.AppendChild(title, anchor)
	}
}

// slug returns the anchor that GitHub gives to a heading.
func slug(words string) string {
	return strings.Map(func(letter rune) rune {
		switch {
		case letter == ' ':
			return '-'
		case letter == '-', letter == '_', unicode.IsLetter(letter), unicode.IsNumber(letter), unicode.IsMark(letter):
			return letter
		}
		return -1
	}, strings.ToLower(words))
}

// plainText returns the words of a node without markup.
func plainText(node ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(node, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if words, ok := node.(*ast.Text); ok && entering {
			out.Write(words.Segment.Value(source))
			if words.SoftLineBreak() {
				out.WriteByte(' ')
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// render sets the body of a page.
func (s *site) render(p *page) error {
	source := []byte(p.text)
	err := ast.Walk(p.document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Link:
			s.link(p, node, plainText(node, source))
		case *ast.Image:
			name := path.Join(path.Dir(p.base), string(node.Destination))
			content, err := s.repository.ReadFile(name)
			if err != nil {
				break // the check reports it
			}
			name = strings.TrimPrefix(name, "docs/")
			node.Destination = []byte(p.Root + name)
			return ast.WalkContinue, writeFile(filepath.Join(s.folder, name), content)
		case *ast.RawHTML:
			s.reportHTML(p, string(node.Segments.Value(source)))
		case *ast.HTMLBlock:
			s.reportHTML(p, string(node.Lines().Value(source)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var out strings.Builder
	err = markdown.Renderer().Render(&out, source, p.document)
	p.Body = template.HTML(out.String())
	return err
}

// reportHTML reports HTML other than comments: the site leaves it out.
func (s *site) reportHTML(p *page, text string) {
	if !strings.HasPrefix(text, "<!--") {
		s.problems = append(s.problems, fmt.Errorf("%s: %q is HTML: write it in backquotes", p.Source, text))
	}
}

// link sets the target that a link of a page has on the site, and shows titles of pages instead of names of files.
// Files that are not pages are on GitHub. The anchors of a rule are those of the index.
func (s *site) link(p *page, node *ast.Link, words string) {
	target, err := url.Parse(string(node.Destination))
	if err != nil || target.IsAbs() || target.Host != "" || target.Path == "" && !p.rule {
		return
	}
	name := p.base
	if target.Path != "" {
		name = path.Join(path.Dir(p.base), target.Path)
	}
	place := target.Path // which the check reports
	if found := s.pages[name]; found != nil {
		place = p.Root + found.Output
		if path.Base(words) == path.Base(name) {
			node.RemoveChildren(node)
			node.AppendChild(node, ast.NewString([]byte(found.Title)))
		}
	} else if _, err := s.repository.Stat(name); err == nil {
		place = repository + "/blob/" + s.Version + "/" + name // which leads on to a folder
	}
	if target.Fragment != "" {
		place += "#" + target.EscapedFragment()
	}
	node.Destination = []byte(place)
}
