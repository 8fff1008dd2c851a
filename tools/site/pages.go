package main

import (
	"fmt"
	"html/template"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

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
	Title, Summary string
	Body           template.HTML
	Contents       []heading
	Children       []*page // pages of the navigation below this one
	Parent         *page   // the index of a rule
	Previous, Next *page
	base           string // the file that its relative links start from
	text           string // Markdown
	rule           bool
}

// A heading is a line of a page's table of contents.
type heading struct{ Text, ID string }

// read reads all pages and renders them.
func (s *site) read() error {
	s.pages = map[string]*page{}
	names := []string{home, "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE"}
	for _, pattern := range []string{"docs/*.md", "examples/*/README.md", "internal/review/lint/rules/*.txtar"} {
		found, err := filepath.Glob(filepath.Join(s.source, pattern))
		if err != nil {
			return err
		}
		for _, name := range found {
			name, err := filepath.Rel(s.source, name)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(name))
		}
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.source, name))
		if err != nil {
			return err
		}
		s.pages[name] = newPage(name, string(text))
	}
	if err := s.addSeverities(); err != nil {
		return err
	}
	if err := s.drawDiagrams(); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.render(s.pages[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	s.navigate()
	return nil
}

func newPage(name, text string) *page {
	p := &page{Source: name, base: name, text: text}
	switch {
	case name == home:
		p.Output = "index.html"
		p.text, _, _ = strings.Cut(text, "\n## Documentation\n") // the site lists the pages itself
	case name == index:
		p.Output = "docs.html"
	case name == "LICENSE":
		p.Output, p.text = "project/license.html", "# License\n\n```\n"+text+"```\n"
	case strings.HasSuffix(name, ".txtar"):
		id := strings.TrimSuffix(path.Base(name), ".txtar")
		p.Output, p.base, p.rule, p.text = "rules/"+id+".html", rulesIndex, true, rulePage(id, text)
	case strings.HasPrefix(name, "docs/"):
		p.Output = strings.TrimSuffix(path.Base(name), ".md") + ".html"
	case strings.HasSuffix(name, "/README.md"):
		p.Output = strings.TrimSuffix(name, "/README.md") + ".html"
	default: // docs/ has a security.md, too
		p.Output = "project/" + strings.ToLower(strings.TrimSuffix(name, ".md")) + ".html"
	}
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
		language := ""
		if strings.Contains(name, ".yaml") {
			language = "yaml"
		}
		out += fmt.Sprintf("\n%s:\n\n```%s\n%s```\n", name, language, file.Data)
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
			s.sections = append(s.sections, section{Title: title})
			continue
		}
		name := path.Join(path.Dir(index), found[2])
		if page := s.pages[name]; page != nil && !placed[name] && len(s.sections) > 0 {
			placed[name] = true
			last := &s.sections[len(s.sections)-1]
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
	for _, section := range s.sections {
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
