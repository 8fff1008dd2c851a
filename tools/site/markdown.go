package main

import (
	"fmt"
	"html"
	"html/template"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/alecthomas/chroma/v2/styles"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// render sets the title, the contents and the body of a page.
func (s *site) render(p *page) error {
	source := []byte(p.text)
	writer := &nodeWriter{diagrams: s.diagrams}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(
		goldmarkhtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(writer, 1)),
	))
	document := markdown.Parser().Parse(text.NewReader(source))
	used := map[string]int{}
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			p.addHeading(node, source, used)
		case *ast.Paragraph:
			if words := plainText(node, source); p.Summary == "" && p.Title != "" {
				p.Summary = words
			}
		case *ast.Link:
			node.Destination = []byte(s.link(p, string(node.Destination)))
		case *ast.Image:
			picture, err := s.picture(p, string(node.Destination))
			if err != nil {
				return ast.WalkStop, err
			}
			node.Destination = []byte(picture)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := markdown.Renderer().Render(&out, source, document); err != nil {
		return err
	}
	p.Body = template.HTML(out.String())
	return nil
}

func (p *page) addHeading(node *ast.Heading, source []byte, used map[string]int) {
	words := plainText(node, source)
	id := slug(words)
	if count := used[id]; count > 0 {
		id = fmt.Sprintf("%s-%d", id, count)
	}
	used[slug(words)]++
	node.SetAttributeString("id", []byte(id))
	switch {
	case node.Level == 1 && p.Title == "":
		p.Title = words
	case node.Level == 2:
		p.Contents = append(p.Contents, heading{words, id})
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
		switch node := node.(type) {
		case *ast.Text:
			if entering {
				out.Write(node.Segment.Value(source))
				if node.SoftLineBreak() {
					out.WriteByte(' ')
				}
			}
		case *ast.AutoLink:
			if entering {
				out.Write(node.Label(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// link returns the target that a link of a page has on the site. Files that are not pages are on GitHub. The anchors
// of a rule are those of the index.
func (s *site) link(p *page, destination string) string {
	target, err := url.Parse(destination)
	if err != nil || target.IsAbs() || target.Host != "" {
		return destination
	}
	if target.Path == "" && !p.rule {
		return destination
	}
	name := path.Join(path.Dir(p.base), target.Path)
	if target.Path == "" {
		name = p.base
	}
	fragment := ""
	if target.Fragment != "" {
		fragment = "#" + target.EscapedFragment()
	}
	if found := s.pages[name]; found != nil {
		return strings.Repeat("../", strings.Count(p.Output, "/")) + found.Output + fragment
	}
	file, err := os.Stat(filepath.Join(s.source, name))
	switch {
	case err != nil:
		s.problems = append(s.problems, fmt.Errorf("%s links to %s, which does not exist", p.Source, destination))
		return destination
	case file.IsDir():
		return repository + "/tree/" + s.version + "/" + name + fragment
	}
	return repository + "/blob/" + s.version + "/" + name + fragment
}

// picture copies a picture of a page to the site, and returns its place.
func (s *site) picture(p *page, destination string) (string, error) {
	if strings.Contains(destination, "://") {
		return destination, nil
	}
	source := path.Join(path.Dir(p.base), destination)
	content, err := os.ReadFile(filepath.Join(s.source, source))
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("%s shows %s, which does not exist", p.Source, destination))
		return destination, nil
	}
	name := strings.TrimPrefix(source, "docs/")
	return strings.Repeat("../", strings.Count(p.Output, "/")) + name, writeFile(filepath.Join(s.folder, name), content)
}

// A nodeWriter writes the nodes that the site shows in its own way.
type nodeWriter struct{ diagrams map[string]string }

func (w *nodeWriter) RegisterFuncs(registry renderer.NodeRendererFuncRegisterer) {
	registry.Register(ast.KindHeading, w.writeHeading)
	registry.Register(ast.KindFencedCodeBlock, w.writeCode)
	registry.Register(extensionast.KindTable, w.writeTable)
}

func (w *nodeWriter) writeHeading(
	out util.BufWriter, source []byte, node ast.Node, entering bool,
) (ast.WalkStatus, error) {
	level := node.(*ast.Heading).Level
	value, _ := node.AttributeString("id")
	id := html.EscapeString(string(value.([]byte)))
	if entering {
		fmt.Fprintf(out, `<h%d id="%s">`, level, id)
		return ast.WalkContinue, nil
	}
	if level > 1 {
		fmt.Fprintf(out, ` <a class="anchor" href="#%s" aria-label="Link to: %s" data-pagefind-ignore>#</a>`, id,
			html.EscapeString(plainText(node, source)))
	}
	fmt.Fprintf(out, "</h%d>\n", level)
	return ast.WalkContinue, nil
}

// writeTable writes a table into an element that scrolls.
func (w *nodeWriter) writeTable(out util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = out.WriteString("<div class=\"table\" tabindex=\"0\"><table>\n")
	} else {
		_, _ = out.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func (w *nodeWriter) writeCode(
	out util.BufWriter, source []byte, node ast.Node, entering bool,
) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	code := string(node.Lines().Value(source))
	language := string(node.(*ast.FencedCodeBlock).Language(source))
	if picture := w.diagrams[code]; language == mermaid && picture != "" {
		fmt.Fprintf(out, `<figure><a href="%s"><img class="diagram" src="%[1]s" alt="Diagram"></a>
<details><summary>Diagram as text</summary>`, picture)
		defer func() { _, _ = out.WriteString("</details></figure>\n") }()
	}
	if language == "" && strings.HasPrefix(code, "$ ") {
		language = "console"
	}
	lexer := lexers.Get(language)
	if lexer == nil || language == "" {
		lexer = lexers.Fallback
	}
	tokens, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return ast.WalkStop, err
	}
	_, _ = out.WriteString("<pre class=\"chroma\" tabindex=\"0\"><code>")
	defer func() { _, _ = out.WriteString("</code></pre>\n") }()
	formatter := chromahtml.New(chromahtml.WithClasses(true), chromahtml.PreventSurroundingPre(true))
	return ast.WalkSkipChildren, formatter.Format(out, styles.Fallback, tokens)
}
