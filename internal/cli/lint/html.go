package lint

import (
	"fmt"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of a page.
const (
	maxOpen      = 100 // findings that are shown without unfolding their files
	maxFindings  = 2_000
	maxExplained = 400 // lines of a rule
)

// page returns the report as a page: counts, findings by file, the stages of a rehearsal, and rules.
func (r Report) page(title string, showSuppressed bool) look.Page {
	counts := g.Group{h.P(g.Text(r.count()))}
	rest := r.notChecked()
	if r.Rehearsal != nil {
		rest = append(r.Rehearsal.notTried(), rest...)
	}
	if len(rest) > 0 {
		counts = append(counts, look.List(rest))
	}
	page := look.Page{Title: title, Sections: []look.Section{{ID: "summary", Title: "Summary", Body: counts}}}
	add := func(id, title string, body g.Group) {
		if len(body) > 0 {
			page.Sections = append(page.Sections, look.Section{ID: id, Title: title, Body: body})
		}
	}
	add("findings", "Findings", findingsByFile(r.Findings))
	shown := r.Findings
	if showSuppressed {
		add("ignored", "Ignored findings", findingsByFile(r.Suppressed))
		shown = slices.Concat(shown, r.Suppressed)
	}
	if r.Rehearsal != nil {
		add("rehearsal", "Rehearsal", r.Rehearsal.html())
	}
	add("rules", "Rules", explanations(shown))
	return page
}

// severities are the severities of findings, the worst first, with their tones and names.
var severities = []struct {
	lint.Severity
	tone look.Tone
	name string
}{
	{lint.Error, look.Bad, "error"}, {lint.Warning, look.Waiting, "warning"}, {lint.Info, look.Later, "note"},
}

func rankOf(f lint.Finding) int {
	for i, severity := range severities {
		if severity.Severity == f.Severity {
			return i
		}
	}
	return len(severities) - 1
}

// findingsByFile returns findings by file, the worst first. If there are many, files without an error are folded.
func findingsByFile(findings []lint.Finding) g.Group {
	type place struct {
		file string
		in   lint.Origin
	}
	worstFirst := slices.Clone(findings)
	slices.SortStableFunc(worstFirst, func(a, b lint.Finding) int { return rankOf(a) - rankOf(b) })
	var places []place
	byPlace := map[place][]lint.Finding{}
	for _, f := range worstFirst[:min(len(findings), maxFindings)] {
		where := place{f.File, f.In}
		if byPlace[where] == nil {
			places = append(places, where)
		}
		byPlace[where] = append(byPlace[where], f)
	}
	var body g.Group
	for _, where := range places {
		inFile := byPlace[where]
		isOpen := len(findings) <= maxOpen || inFile[0].Severity == lint.Error
		body = append(body, look.Fold(isOpen, fileHeading(inFile), look.Items(g.Map(inFile, itemOf)...)))
	}
	if len(findings) == 0 {
		return nil
	}
	return append(body, look.More(len(findings)-maxFindings, "finding"))
}

// fileHeading returns the name of a file, and how many findings of each severity it has.
func fileHeading(findings []lint.Finding) g.Node {
	counts := make([]int, len(severities))
	for _, f := range findings {
		counts[rankOf(f)]++
	}
	heading := g.Group{h.H3(look.Text(fileTitle(findings[0])))}
	for i, severity := range severities {
		if counts[i] > 0 {
			heading = append(heading, g.Text(" "), look.State(severity.tone, printable.Count(counts[i], severity.name)))
		}
	}
	return heading
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
	severity := severities[rankOf(f)]
	item := g.Group{look.State(severity.tone, severity.name), g.Text(" ")}
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
			body = append(body, look.Fold(false, h.H3(g.Text(rule.ID)),
				h.Div(h.ID("rule-"+rule.ID), look.Block(text, maxExplained)))) // inside, so that a link unfolds it
		}
	}
	return body
}

// html describes the control plane and the stages.
func (i *RehearsalInfo) html() g.Group {
	body := g.Map(i.controlPlane(), func(line string) g.Node { return h.P(look.Text(line)) })
	stages := look.Table{Caption: "Stages", Columns: []string{"Stage", "Objects", "Seconds", "Levels"}}
	for _, stage := range i.Stages {
		stages.Rows = append(stages.Rows, []g.Node{
			g.Text(stage.Name), g.Textf("%d", stage.Objects), g.Textf("%.1f", stage.Seconds),
			look.Text(slowestOf(stage)),
		})
	}
	return append(body, stages.Node())
}
