package lint

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"golang.org/x/tools/txtar"
)

// The pages are txtar archives. The comment is the text of the page, whose first paragraph is
// the summary of the rule; bad/ is a payload with
// findings, bad.previous/ its previous payload, bad.baseline its baseline, and want the
// findings. The other payloads are for tests.
//
//go:embed rules/*.txtar
var pages embed.FS

// page returns the archive of a rule.
func page(rule Rule) *txtar.Archive {
	text, err := pages.ReadFile("rules/" + rule.ID + ".txtar")
	if err != nil {
		return &txtar.Archive{}
	}
	return txtar.Parse(text)
}

// Summary returns the first paragraph of a rule's page: one sentence about its findings.
func (r Rule) Summary() string {
	summary, _, _ := strings.Cut(string(page(r).Comment), "\n\n")
	return summary
}

// Explain returns the page of a rule in Markdown: how to fix a finding, why it matters,
// when to ignore it, and an example.
func Explain(rule Rule) string {
	var out strings.Builder
	archive := page(rule)
	fmt.Fprintf(&out, "## %s\n\n**%s**", rule.ID, rule.Severity)
	if rule.needs != nothing {
		fmt.Fprintf(&out, ", needs %s", rule.needs)
	}
	fmt.Fprintf(&out, ". %s\n", strings.TrimSpace(string(archive.Comment)))
	for _, file := range archive.Files {
		folder, name, _ := strings.Cut(file.Name, "/")
		switch folder {
		case "bad.previous":
			name += " of the previous payload"
		case "bad.baseline":
			name = ".runlevel-baseline"
		case "bad":
		case "want":
			fmt.Fprintf(&out, "\n```\n%s```\n", file.Data)
			continue
		default:
			continue
		}
		fmt.Fprintf(&out, "\n%s:\n\n```%s\n%s```\n", name, language(name), file.Data)
	}
	return out.String()
}

// language returns the language of a file, for syntax highlighting.
func language(name string) string {
	name, _, _ = strings.Cut(name, " ")
	switch ending := strings.TrimPrefix(path.Ext(name), "."); ending {
	case "yaml", "json":
		return ending
	default:
		return ""
	}
}
