package main

import (
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"golang.org/x/tools/txtar"
)

// Pages with a meaning for the site.
const (
	home       = "README.md"
	index      = "docs/README.md"
	rulesIndex = "docs/lint.md"
)

// A page is written from one file.
type page struct {
	Source, Output string // paths in the repository and on the site
	Root           string // path of the version's folder, relative to the page
	Title, Summary string
	Body           template.HTML
	Contents       []heading
	Children       []*page // pages of the navigation below this one
	Parent         *page   // the index of a rule
	Previous, Next *page
	base           string // the file that its relative links start from
	text           string // Markdown
	document       ast.Node
	rule           bool
}

// A heading is a line of a page's table of contents.
type heading struct{ Text, ID string }

// read reads all pages and renders them.
func (s *site) read() error {
	s.pages = map[string]*page{}
	for _, pattern := range []string{
		"*.md", "docs/*.md", "examples/*/README.md", "internal/review/lint/rules/*.txtar",
	} {
		names, err := fs.Glob(s.repository.FS(), pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			text, err := s.repository.ReadFile(name)
			if err != nil {
				return err
			}
			s.pages[name] = newPage(name, string(text))
		}
	}
	for _, name := range []string{home, index, rulesIndex} {
		if s.pages[name] == nil {
			return fmt.Errorf("%s has no %s", s.source, name)
		}
	}
	if err := s.addSeverities(); err != nil {
		return err
	}
	for _, page := range s.pages {
		page.parse()
	}
	for name, page := range s.pages {
		if err := s.render(page); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	s.navigate()
	return nil
}

func newPage(name, text string) *page {
	p := &page{Source: name, base: name, text: text}
	base := strings.ToLower(strings.TrimSuffix(path.Base(name), path.Ext(name)))
	switch {
	case name == home:
		p.Output = "index.html"
	case name == index:
		p.Output = "docs.html"
	case path.Ext(name) == ".txtar":
		p.Output, p.base, p.rule, p.text = "rules/"+base+".html", rulesIndex, true, rulePage(base, text)
	case path.Dir(name) == "docs":
		p.Output = base + ".html"
	case path.Dir(name) == ".": // docs/ has a security.md, too
		p.Output = "project/" + base + ".html"
	default: // a README.md
		p.Output = path.Dir(name) + ".html"
	}
	p.Root = strings.Repeat("../", strings.Count(p.Output, "/"))
	return p
}

// runIn is a paragraph that begins with its heading.
var runIn = regexp.MustCompile(`(?m)^\*\*([^*\n]+)\.\*\*\s+`)

// rulePage returns the page of a lint rule, as "runlevel explain" prints it, with headings.
func rulePage(id, text string) string {
	archive := txtar.Parse([]byte(text))
	out := "# " + id + "\n\n" + runIn.ReplaceAllString(string(archive.Comment), "## $1\n\n") + "\n## Example\n"
	for _, file := range archive.Files {
		folder, name, _ := strings.Cut(file.Name, "/")
		switch folder {
		case "bad":
		case "bad.previous":
			name += " of the previous payload"
		case "bad.baseline":
			name = ".runlevel-baseline"
		case "want":
			name = "Findings"
		default:
			continue
		}
		out += fmt.Sprintf("\n%s:\n\n```%s\n%s```\n", name, strings.TrimPrefix(path.Ext(file.Name), "."), file.Data)
	}
	return out
}

// ruleRow is a row of the rules' index, with the file and the severity.
var ruleRow = regexp.MustCompile(`(?m)^\| \[[a-z-]+\]\(\.\./(internal/\S+\.txtar)\) \| ([^|]+) \|`)

// addSeverities adds the severity to each rule's page, and the order of the index.
func (s *site) addSeverities() error {
	for _, row := range ruleRow.FindAllStringSubmatch(s.pages[rulesIndex].text, -1) {
		rule := s.pages[row[1]]
		if rule == nil {
			return fmt.Errorf("%s has a row for %s, which does not exist", rulesIndex, row[1])
		}
		rule.Parent, s.rules = s.pages[rulesIndex], append(s.rules, rule)
		title, text, _ := strings.Cut(rule.text, "\n\n")
		rule.text = title + "\n\n**" + row[2] + "**. " + text
	}
	return nil
}

// indexLine is a heading of the index, or one link of a line.
var indexLine = regexp.MustCompile(`(?m)^## (.+)$|\]\(([^)#]+)[^)]*\)`)

// navigate makes the navigation of docs/README.md: its sections, and the pages that they link to. A page such as
// migrate-helm.md, which is not linked there, is below migrate.md.
func (s *site) navigate() {
	placed := map[string]bool{index: true, home: true}
	for _, found := range indexLine.FindAllStringSubmatch(s.pages[index].text, -1) {
		if title := found[1]; title != "" {
			s.Sections = append(s.Sections, section{Title: title})
			continue
		}
		name := path.Join(path.Dir(index), found[2])
		if page := s.pages[name]; page != nil && !placed[name] && len(s.Sections) > 0 {
			placed[name] = true
			last := &s.Sections[len(s.Sections)-1]
			last.Pages = append(last.Pages, page)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if placed[name] || path.Dir(name) != path.Dir(index) {
			continue
		}
		parent, _, _ := strings.Cut(name, "-")
		if !placed[parent+".md"] {
			s.problems = append(s.problems, fmt.Errorf("%s is in no section of %s: link it there", name, index))
			continue
		}
		page := s.pages[parent+".md"]
		page.Children = append(page.Children, s.pages[name])
	}
	var order []*page
	for _, section := range s.Sections {
		for _, page := range section.Pages {
			order = append(append(order, page), page.Children...)
		}
	}
	for _, sequence := range [][]*page{order, s.rules} {
		for i, page := range sequence[min(1, len(sequence)):] {
			sequence[i].Next, page.Previous = page, sequence[i]
		}
	}
}
