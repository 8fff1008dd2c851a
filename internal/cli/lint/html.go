package lint

import (
	"fmt"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of a page, in findings.
const (
	maxOpen     = 100 // are shown without unfolding their files
	maxFindings = 2_000
)

// page returns the report as a page: counts, the stages of a rehearsal, findings by file, and their rules.
func (r Report) page(title string, showSuppressed bool) look.Page {
	summary, rest, _ := strings.Cut(strings.TrimSpace(r.summary()), "\n")
	counts := g.Group{h.P(g.Text(summary))}
	if r.Rehearsal == nil && rest != "" {
		counts = append(counts, look.List(strings.Split(rest, "\n")))
	}
	page := look.Page{Title: title, Sections: []look.Section{{ID: "summary", Title: "Summary", Body: counts}}}
	add := func(id, title string, body g.Group) {
		if len(body) > 0 {
			page.Sections = append(page.Sections, look.Section{ID: id, Title: title, Body: body})
		}
	}
	if r.Rehearsal != nil {
		add("rehearsal", "Rehearsal", r.Rehearsal.html())
	}
	add("findings", "Findings", findingsByFile(r.Findings))
	shown := r.Findings
	if showSuppressed {
		add("ignored", "Ignored findings", findingsByFile(r.Suppressed))
		shown = slices.Concat(shown, r.Suppressed)
	}
	add("rules", "Rules", explanations(shown))
	return page
}

// findingsByFile returns findings in the order of their files.
func findingsByFile(findings []lint.Finding) g.Group {
	var body g.Group
	shown := findings[:min(len(findings), maxFindings)]
	for len(shown) > 0 {
		first := shown[0]
		count := slices.IndexFunc(shown, func(f lint.Finding) bool { return f.File != first.File || f.In != first.In })
		if count < 0 {
			count = len(shown)
		}
		items := g.Map(shown[:count], itemOf)
		body = append(body, look.Foldable(len(findings) <= maxOpen,
			g.Group{h.H3(look.Text(fileTitle(first))), g.Textf(" (%d)", count)}, look.Items(items...)))
		shown = shown[count:]
	}
	if more := len(findings) - maxFindings; more > 0 {
		body = append(body, look.More(more, "finding"))
	}
	return body
}

// fileTitle names the file of a finding.
func fileTitle(f lint.Finding) string {
	switch {
	case f.File == "":
		return "The release as a whole"
	case f.In == lint.InPrevious:
		return f.File + ", of the previous release"
	default:
		return f.File
	}
}

// itemOf returns a finding with its place and a link to its rule.
func itemOf(f lint.Finding) g.Node {
	tones := map[lint.Severity]look.Tone{lint.Error: look.Bad, lint.Warning: look.Waiting, lint.Info: look.Later}
	item := g.Group{look.State(tones[f.Severity], string(f.Severity)), g.Text(" ")}
	if f.Object != "" {
		item = append(item, look.Code(f.Object), g.Text(": "))
	}
	var places []string
	if f.Line > 0 {
		places = append(places, fmt.Sprintf("line %d", f.Line))
	}
	if field := pathOf(f.Field()); field != "" {
		places = append(places, "field "+field)
	}
	if f.Near != nil {
		places = append(places, strings.TrimSuffix(fmt.Sprintf("to fix in %s:%d", f.Near.File, f.Near.Line), ":0"))
	}
	if f.Suppressed != nil {
		places = append(places, fmt.Sprintf("ignored by %s:%d: %s", f.Suppressed.File, f.Suppressed.Line,
			f.Suppressed.Reason))
	}
	return append(item, look.Text(f.Message), g.Text(" "),
		h.Small(look.Text(strings.Join(append(places, "rule "), ", ")),
			h.A(h.Href("#rule-"+f.Rule), look.Text(f.Rule))))
}

// pathOf returns a field as people write it.
func pathOf(keys []string) string {
	var path strings.Builder
	for _, key := range keys {
		if strings.ContainsAny(key, "./") || strings.Trim(key, "0123456789") == "" {
			path.WriteString("[" + key + "]")
		} else {
			path.WriteString("." + key)
		}
	}
	return strings.TrimPrefix(path.String(), ".")
}

// explanations returns the pages of the rules of findings.
func explanations(findings []lint.Finding) g.Group {
	var body g.Group
	for _, rule := range lint.Rules() {
		if slices.ContainsFunc(findings, func(f lint.Finding) bool { return f.Rule == rule.ID }) {
			_, text, _ := strings.Cut(lint.Explain(rule), "\n\n") // after the heading
			body = append(body, look.Foldable(false, h.H3(g.Text(rule.ID)), h.ID("rule-"+rule.ID), look.Markdown(text)))
		}
	}
	return body
}

// html describes the control plane and the stages.
func (i *RehearsalInfo) html() g.Group {
	body := g.Map(i.controlPlane(), func(line string) g.Node { return h.P(look.Text(line)) })
	stages := look.Table{Caption: "Stages", Columns: []string{"Stage", "Objects", "Seconds"}}
	var levels g.Group
	for _, stage := range i.Stages {
		stages.Rows = append(stages.Rows, []g.Node{
			g.Text(stage.Name), g.Textf("%d", stage.Objects), g.Textf("%.1f", stage.Seconds),
		})
		if len(stage.Levels) > 0 {
			levels = append(levels, look.Foldable(false, h.H3(g.Textf("Levels of %s", stage.Name)), levelTable(stage)))
		}
	}
	return append(append(body, stages.Node()), levels...)
}

// levelTable returns the levels of a stage with their times.
func levelTable(stage rehearse.Stage) g.Node {
	table := look.Table{
		Caption: "Time until all objects were ready, " + stage.Name,
		Columns: []string{"Level and component", "Seconds"},
	}
	for _, level := range stage.Levels {
		table.Rows = append(table.Rows, []g.Node{look.Text(level.Name), g.Textf("%.1f", level.Seconds)})
	}
	return table.Node()
}
