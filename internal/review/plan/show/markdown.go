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
// rest to unfold. It has less than 60,000 characters, and a note on the parts that are cut.
func (pr Printer) Markdown(out io.Writer) error {
	m := &markdown{}
	m.add("## %s\n\n", escapeMarkdown(capital(pr.Title())))
	m.add("**%s**\n\n", escapeMarkdown(pr.Impact()))
	if nothing := pr.ReasonOfNoChange(); nothing != "" {
		m.add("%s.\n\n", escapeMarkdown(capital(nothing)))
	}
	pr.markdownCounts(m)
	pr.markdownWarnings(m)
	pr.markdownGroups(m)
	if cut := m.cutNote(); cut != "" {
		m.add("\n**This is cut.** There is no room for %s: run %s.\n", cut, codeSpan(pr.Command))
	}
	_, err := io.WriteString(out, m.text.String())
	return err
}

// A markdown is a Markdown text of limited length.
type markdown struct {
	text      strings.Builder
	hasGroups bool
	// Counts of cut parts: warnings, details of objects that are listed, and objects.
	cutWarnings, cutDetails, cutObjects int
}

// cutNote returns the cut parts in words; "" if nothing is cut.
func (m *markdown) cutNote() string {
	var parts []string
	if m.cutWarnings > 0 {
		parts = append(parts, printable.Count(m.cutWarnings, "more warning"))
	}
	if m.cutDetails > 0 {
		parts = append(parts, "the details of "+printable.Count(m.cutDetails, "object"))
	}
	if m.cutObjects > 0 {
		parts = append(parts, printable.Count(m.cutObjects, "more object"))
	}
	return strings.Join(parts, ", ")
}

func (m *markdown) add(format string, args ...any) { fmt.Fprintf(&m.text, format, args...) }

// hasRoom reports whether there is room for more bytes.
func (m *markdown) hasRoom(more int) bool { return m.text.Len()+more <= maxMarkdown }

func (pr Printer) markdownCounts(m *markdown) {
	if len(pr.Plan.Counts) == 0 {
		return
	}
	m.add("| objects | |\n|---:|---|\n")
	for _, action := range plan.Actions() {
		if count := pr.Plan.Counts[action]; count > 0 {
			m.add("| %d | %s |\n", count, CountWords(action, count))
		}
	}
}

func (pr Printer) markdownWarnings(m *markdown) {
	warnings, notes := pr.Plan.Warnings, pr.Notes()
	if len(warnings) == 0 && len(notes) == 0 {
		return
	}
	m.add("\n### Needs attention\n\n")
	for _, line := range notes {
		m.add("- %s\n", escapeMarkdown(line))
	}
	shown := 0
	for _, warning := range warnings[:min(len(warnings), maxMarkdownWarnings)] {
		text := fmt.Sprintf("- %s: %s\n", codeSpan(warning.ID.String()), escapeMarkdown(warning.Message))
		if !m.hasRoom(len(text)) {
			break
		}
		m.add("%s", text)
		shown++
	}
	if m.cutWarnings = len(warnings) - shown; m.cutWarnings > 0 {
		m.add("- and %s\n", printable.Count(m.cutWarnings, "more warning"))
	}
}

func (pr Printer) markdownGroups(m *markdown) {
	for _, g := range pr.Groups() {
		if len(g.Entries) > 0 {
			pr.markdownGroup(m, g)
		}
	}
}

// markdownGroup writes the objects of a group for which there is room.
func (pr Printer) markdownGroup(m *markdown, g *Group) {
	var body strings.Builder
	head := fmt.Sprintf("\n<details><summary>%s: %s</summary>\n\n", htmlCode(g.Title), g.Summary())
	if g.From != "" {
		head += fmt.Sprintf("All of it comes from %s.\n\n", codeSpan(g.From))
	}
	if !m.hasGroups {
		head = "\n### Object by object\n" + head
	}
	const tail = "\n</details>\n"
	for i, e := range g.Entries {
		text, named := pr.markdownEntry(g, e)
		room := len(head) + body.Len() + len(tail)
		if !m.hasRoom(room + len(text)) {
			if text != named {
				m.cutDetails++
			}
			text = named
		}
		if !m.hasRoom(room + len(text)) {
			m.cutObjects += len(g.Entries) - i
			break
		}
		body.WriteString(text)
	}
	if body.Len() > 0 {
		m.hasGroups = true
		m.add("%s%s%s", head, body.String(), tail)
	}
}

// Summary returns the counts of the actions in a group.
func (g *Group) Summary() string {
	counts := map[plan.Action]int{}
	for _, e := range g.Entries {
		counts[e.Action]++
	}
	var parts []string
	for _, action := range plan.Actions() {
		if counts[action] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[action], action))
		}
	}
	if g.Hidden > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", g.Hidden))
	}
	return strings.Join(parts, ", ")
}

// markdownEntry returns an object with its details, and without.
func (pr Printer) markdownEntry(g *Group, e plan.ObjectPlan) (whole, named string) {
	var out strings.Builder
	fmt.Fprintf(&out, "- **%s** %s", e.Action, codeSpan(e.ID.String()))
	details := pr.Details(g, e, maxMarkdownFields)
	if details.Why != "" {
		fmt.Fprintf(&out, ": %s", escapeMarkdown(details.Why))
	}
	out.WriteString("\n")
	named = out.String()
	for _, line := range details.Hooks {
		fmt.Fprintf(&out, "  - %s\n", escapeMarkdown(line))
	}
	for _, d := range details.Changes {
		fmt.Fprintf(&out, "  - %s: %s → %s", codeSpan(d.Path), codeSpan(d.Old), codeSpan(d.New))
		if d.Remark != "" {
			fmt.Fprintf(&out, "  (%s)", escapeMarkdown(d.Remark))
		}
		out.WriteString("\n")
		if len(d.Lines) > 0 {
			out.WriteString(codeBlock("diff", strings.Join(d.Lines, "\n"), "    "))
		}
	}
	if details.Rest != "" {
		fmt.Fprintf(&out, "  - %s\n", details.Rest)
	}
	for _, foreign := range details.Foreign {
		fmt.Fprintf(&out, "  - %s\n", escapeMarkdown(foreign))
	}
	if details.Tombstone != "" {
		fmt.Fprintf(&out, "  - to delete it, put this into %s:\n", codeSpan(details.File))
		out.WriteString(codeBlock(details.Language, details.Tombstone, "    "))
	}
	return out.String(), named
}

// codeSpan returns a code span that no text in it can end.
func codeSpan(text string) string {
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

// codeBlock returns a code block that no text in it can end.
func codeBlock(language, text, indent string) string {
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s%s\n", indent, fence, language)
	writeLines(&out, indent, strings.TrimSuffix(text, "\n")+"\n")
	fmt.Fprintf(&out, "%s%s\n", indent, fence)
	return out.String()
}

// longestRun returns the length of the longest run of backticks.
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

// escapeMarkdown escapes all markup in a text: that of Markdown, and that of code hosts,
// which make links of names, numbers and hashes, emojis of :names: and formulas of
// $dollars$. A zero-width space prevents the latter.
func escapeMarkdown(text string) string {
	var out strings.Builder
	plain := colons.ReplaceAllString(shortLine(text), ":"+noWidth+"$1")
	plain = hashes.ReplaceAllStringFunc(plain, func(hash string) string {
		return piece.ReplaceAllString(hash, "$0"+noWidth)
	})
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
	return strings.NewReplacer("www.", "www"+noWidth+".", "://", ":"+noWidth+"//", "GH-",
		"GH"+noWidth+"-").Replace(out.String())
}

const noWidth = "\u200b"

// Text that becomes an emoji, and text that looks like the hash of a commit.
var (
	colons = regexp.MustCompile(`:([A-Za-z0-9_+-])`)
	hashes = regexp.MustCompile(`\b[0-9a-fA-F]{7,40}\b`)
	piece  = regexp.MustCompile(`.{6}`) // part of a hash, too short to be taken for one
)

// htmlCode returns a text as HTML code.
func htmlCode(text string) string {
	return "<code>" + html.EscapeString(printable.Line(text)) + "</code>"
}

// maxShort is the maximum length in a line of a text from a manifest or a cluster.
const maxShort = 300

// shortLine returns a text in a line, cut after it is escaped: an escaped character may have ten
// characters.
func shortLine(text string) string {
	return printable.Shorten(printable.Line(printable.Shorten(text, maxShort)), maxShort)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
