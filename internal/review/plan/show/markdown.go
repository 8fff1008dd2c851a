package show

import (
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"

	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// How much Markdown shows. Comments of GitHub may have 65,536 characters, and a
// workflow may want to put a line of its own around it.
const (
	maxMarkdown         = 58_000 // bytes, which are at least as many as characters
	maxMarkdownWarnings = 30
	maxMarkdownFields   = 15
)

// Markdown writes the plan for a pull request: numbers, what needs attention, and the
// rest to unfold. It has less than 60,000 characters, and says what is cut.
func (v Printer) Markdown(out io.Writer) error {
	m := &markdown{}
	m.add("## %s\n\n", sentence(capital(v.title())))
	if nothing := v.reasonOfNoChange(); nothing != "" {
		m.add("%s.\n\n", sentence(capital(nothing)))
	}
	v.markdownCounts(m)
	v.markdownWarnings(m)
	v.markdownGroups(m)
	if cut := m.cut(); cut != "" {
		m.add("\n**This is cut.** There is no room for %s: run %s.\n", cut, code(v.Command))
	}
	_, err := io.WriteString(out, m.text.String())
	return err
}

// A markdown is a text that must not become too long.
type markdown struct {
	text      strings.Builder
	hasGroups bool
	// What there was no room for: warnings, the details of objects that are named, and objects.
	cutWarnings, cutDetails, cutObjects int
}

// cut says what there was no room for; "" if there was for all.
func (m *markdown) cut() string {
	var said []string
	if m.cutWarnings > 0 {
		said = append(said, printable.Count(m.cutWarnings, "more warning"))
	}
	if m.cutDetails > 0 {
		said = append(said, "the details of "+printable.Count(m.cutDetails, "object"))
	}
	if m.cutObjects > 0 {
		said = append(said, printable.Count(m.cutObjects, "more object"))
	}
	return strings.Join(said, ", ")
}

func (m *markdown) add(format string, args ...any) { fmt.Fprintf(&m.text, format, args...) }

// fits says whether there is room for so much more.
func (m *markdown) fits(more int) bool { return m.text.Len()+more <= maxMarkdown }

func (v Printer) markdownCounts(m *markdown) {
	if len(v.Plan.Counts) == 0 {
		return
	}
	m.add("| objects | |\n|---:|---|\n")
	for _, action := range plan.Actions() {
		if count := v.Plan.Counts[action]; count > 0 {
			m.add("| %d | %s |\n", count, counted(action, count))
		}
	}
}

func (v Printer) markdownWarnings(m *markdown) {
	warnings, beside := v.Plan.Warnings, v.clusterNotes()
	if len(warnings) == 0 && len(beside) == 0 {
		return
	}
	m.add("\n### Needs attention\n\n")
	for _, line := range beside {
		m.add("- %s\n", sentence(line))
	}
	told := 0
	for _, warning := range warnings[:min(len(warnings), maxMarkdownWarnings)] {
		text := fmt.Sprintf("- %s: %s\n", code(warning.ID.String()), sentence(warning.Message))
		if !m.fits(len(text)) {
			break
		}
		m.add("%s", text)
		told++
	}
	if m.cutWarnings = len(warnings) - told; m.cutWarnings > 0 {
		m.add("- and %s\n", printable.Count(m.cutWarnings, "more warning"))
	}
}

func (v Printer) markdownGroups(m *markdown) {
	for _, g := range v.groups() {
		if len(g.entries) > 0 {
			v.markdownGroup(m, g)
		}
	}
}

// markdownGroup writes as much of a group as there is room for.
func (v Printer) markdownGroup(m *markdown, g *group) {
	var body strings.Builder
	head := fmt.Sprintf("\n<details><summary>%s: %s</summary>\n\n", quoted(g.title), g.markdownSummary())
	if g.from != "" {
		head += fmt.Sprintf("All of it comes from %s.\n\n", code(g.from))
	}
	if !m.hasGroups {
		head = "\n### Object by object\n" + head
	}
	const tail = "\n</details>\n"
	for i, e := range g.entries {
		text, named := v.markdownEntry(g, e)
		room := len(head) + body.Len() + len(tail)
		if !m.fits(room + len(text)) {
			if text != named {
				m.cutDetails++
			}
			text = named
		}
		if !m.fits(room + len(text)) {
			m.cutObjects += len(g.entries) - i
			break
		}
		body.WriteString(text)
	}
	if body.Len() > 0 {
		m.hasGroups = true
		m.add("%s%s%s", head, body.String(), tail)
	}
}

// markdownSummary counts what happens in a group.
func (g *group) markdownSummary() string {
	counts := map[plan.PlannedAction]int{}
	for _, e := range g.entries {
		counts[e.Action]++
	}
	var said []string
	for _, action := range plan.Actions() {
		if counts[action] > 0 {
			said = append(said, fmt.Sprintf("%d %s", counts[action], action))
		}
	}
	if g.hidden > 0 {
		said = append(said, fmt.Sprintf("%d unchanged", g.hidden))
	}
	return strings.Join(said, ", ")
}

// markdownEntry writes an object with its details, and without.
func (v Printer) markdownEntry(g *group, e plan.ObjectPlan) (whole, named string) {
	var out strings.Builder
	fmt.Fprintf(&out, "- **%s** %s", e.Action, code(e.ID.String()))
	if why := g.why(e); why != "" {
		fmt.Fprintf(&out, ": %s", sentence(why))
	}
	out.WriteString("\n")
	named = out.String()
	for _, line := range v.hooks(e) {
		fmt.Fprintf(&out, "  - %s\n", sentence(line))
	}
	changes, descriptions, more := listedChanges(e, maxMarkdownFields)
	for _, change := range changes {
		d := differenceOf(e.Kind, change, false)
		fmt.Fprintf(&out, "  - %s: %s → %s%s\n", code(d.path), code(d.old), code(d.new), sentence(d.remark()))
		if len(d.lines) > 0 {
			out.WriteString(fenced("diff", strings.Join(d.lines, "\n"), "    "))
		}
	}
	if rest := unlistedCounts(descriptions, more); rest != "" {
		fmt.Fprintf(&out, "  - %s\n", rest)
	}
	if text, file, language := v.tombstone(e); text != "" {
		fmt.Fprintf(&out, "  - to delete it, put this into %s:\n", code(file))
		out.WriteString(fenced(language, text, "    "))
	}
	return out.String(), named
}

// code is a text that nothing in it can end.
func code(text string) string {
	text = shortLine(text)
	if text == "" {
		text = " "
	}
	fence := strings.Repeat("`", longestRun(text)+1)
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// fenced is a block of text that nothing in it can end.
func fenced(language, text, indent string) string {
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s%s\n", indent, fence, language)
	writeLines(&out, indent, strings.TrimSuffix(text, "\n")+"\n")
	fmt.Fprintf(&out, "%s%s\n", indent, fence)
	return out.String()
}

// longestRun is how many backticks stand side by side.
func longestRun(text string) int {
	longest, run := 0, 0
	for _, r := range text {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}

// sentence is a text in which nothing is markup: neither for Markdown, nor for those
// who make links of names, numbers and hashes, pictures of :names: and formulas of
// $dollars$. A space of no width keeps them from it.
func sentence(text string) string {
	var out strings.Builder
	plain := colons.ReplaceAllString(shortLine(text), ":"+noWidth+"$1")
	plain = hashes.ReplaceAllStringFunc(plain, func(hash string) string { return piece.ReplaceAllString(hash, "$0"+noWidth) })
	for _, r := range plain {
		switch {
		case strings.ContainsRune("\\`*_[]<>|~&", r):
			out.WriteRune('\\')
			out.WriteRune(r)
		case strings.ContainsRune("@#$!%", r):
			out.WriteRune(r)
			out.WriteString(noWidth)
		default:
			out.WriteRune(r)
		}
	}
	return strings.NewReplacer("www.", "www"+noWidth+".", "://", ":"+noWidth+"//", "GH-", "GH"+noWidth+"-").Replace(out.String())
}

const noWidth = "\u200b"

// What becomes a picture, and what is taken for the hash of a commit.
var (
	colons = regexp.MustCompile(`:([A-Za-z0-9_+-])`)
	hashes = regexp.MustCompile(`\b[0-9a-fA-F]{7,40}\b`)
	piece  = regexp.MustCompile(`.{6}`) // of a hash, too short to be taken for one
)

// quoted is a text for HTML.
func quoted(text string) string {
	return "<code>" + html.EscapeString(printable.Line(text)) + "</code>"
}

// maxShort is how long what strangers wrote may be where there is little room.
const maxShort = 300

// shortLine is a text in a line, cut after it has become fit to be shown: what stands for
// one character may be ten.
func shortLine(text string) string {
	return printable.Shorten(printable.Line(printable.Shorten(text, maxShort)), maxShort)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
