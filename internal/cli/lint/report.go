package lint

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Report is a result to print.
type Report struct {
	lint.Result
	Counts    map[lint.Severity]int `json:"counts"`
	Rehearsal *RehearsalInfo        `json:"rehearsal,omitempty"`
}

// lintPaths are the folders of payloads on disk: "" if a payload is not a folder.
type lintPaths struct{ source, release, previous string }

// pathOf returns the path of a file.
func (p lintPaths) pathOf(file string, origin lint.Origin) string {
	folder := p.source
	switch origin {
	case lint.InConfig, lint.InBaseline:
		return file
	case lint.InPrevious:
		folder = p.previous
	case lint.InRelease:
		folder = p.release
	}
	return filepath.ToSlash(filepath.Join(folder, file))
}

// newReport returns the report of a result, with paths on disk.
func newReport(result *lint.Result, paths lintPaths, rehearsal *RehearsalInfo) Report {
	report := Report{
		Result:    result.WithPaths(paths.pathOf),
		Rehearsal: rehearsal,
		Counts:    map[lint.Severity]int{lint.Error: 0, lint.Warning: 0, lint.Info: 0},
	}
	for _, f := range report.Findings {
		report.Counts[f.Severity]++
	}
	return report
}

// causeOf returns a key, which is equal for findings with the same cause, and for notes of the same rule.
func causeOf(f lint.Finding) string {
	if f.Severity == lint.Info {
		return f.Rule
	}
	return strings.Join([]string{f.Rule, string(f.Severity), string(f.In), strings.ReplaceAll(f.Message, f.Object, "")},
		"\n")
}

// foldFindings returns the findings to print: all findings, or the first of many with the same cause, and one note for
// each rule, with the places of the others.
func foldFindings(findings []lint.Finding, all bool) []core.Folded[lint.Finding] {
	if !all {
		folds := core.FoldBeyond(findings, causeOf, func(f lint.Finding) int {
			if f.Severity == lint.Info {
				return 1
			}
			return core.MaxAlike
		})
		for i, fold := range folds {
			if fold.First.Severity == lint.Info && len(fold.Others) > 0 {
				folds[i].First.Message += " (" + listPlaces(fold.Others) + ")"
				folds[i].Others = nil
			}
		}
		return folds
	}
	var each []core.Folded[lint.Finding]
	for _, finding := range findings {
		each = append(each, core.Folded[lint.Finding]{First: finding})
	}
	return each
}

// listPlaces lists the places of findings that are folded into another.
func listPlaces(findings []lint.Finding) string {
	var places []string
	for _, f := range findings {
		place := f.File
		if f.Line > 0 {
			place += fmt.Sprintf(":%d", f.Line)
		}
		places = append(places, printable.Line(place))
	}
	return fmt.Sprintf("and %d more like it, which --all lists: %s", len(findings),
		printable.Few(places, core.MostFiles))
}

// text writes a line for each finding, and the summary. Unless all is set, it writes one line for many
// findings with the same cause.
func (r Report) text(out io.Writer, all, showSuppressed bool) error {
	var text strings.Builder
	line := func(f lint.Finding) {
		text.WriteString(f.String())
		if f.Suppressed != nil {
			fmt.Fprintf(&text, " (ignored by %s:%d: %s)", f.Suppressed.File, f.Suppressed.Line,
				printable.Line(f.Suppressed.Reason))
		}
		text.WriteString("\n")
	}
	for _, fold := range foldFindings(r.Findings, all) {
		line(fold.First)
		if len(fold.Others) > 0 {
			text.WriteString("  " + listPlaces(fold.Others) + "\n")
		}
	}
	if showSuppressed {
		for _, f := range r.Suppressed {
			line(f)
		}
	}
	_, err := io.WriteString(out, text.String()+r.summary())
	return err
}

// summary returns the number of findings, and lists unchecked objects and rules.
func (r Report) summary() string {
	text := r.count() + "\n"
	if r.Rehearsal != nil {
		text += r.Rehearsal.text()
	}
	for _, line := range r.notChecked() {
		text += line + "\n"
	}
	return text
}

// count returns the numbers of findings.
func (r Report) count() string {
	text := fmt.Sprintf("%s, %s, %s", printable.Count(r.Counts[lint.Error], "error"),
		printable.Count(r.Counts[lint.Warning], "warning"), printable.Count(r.Counts[lint.Info], "note"))
	if len(r.Suppressed) > 0 {
		text += fmt.Sprintf(", %d ignored", len(r.Suppressed))
	}
	return text
}

// notChecked returns the rules that were skipped, and the kinds that nothing has checked.
func (r Report) notChecked() []string {
	var lines []string
	var needs []string
	skipped := map[string][]string{}
	for _, s := range r.Skipped {
		if skipped[s.Needs] == nil {
			needs = append(needs, s.Needs)
		}
		skipped[s.Needs] = append(skipped[s.Needs], s.Rule)
	}
	for _, need := range needs {
		lines = append(lines, fmt.Sprintf("not checked without %s: %s", need, printable.Few(skipped[need],
			maxSkipped)))
	}
	var unchecked []string
	for _, kind := range r.Unchecked {
		unchecked = append(unchecked,
			printable.Line(fmt.Sprintf("%s in %s (%d)", kind.Kind, kind.APIVersion, kind.Count)))
	}
	if len(unchecked) > 0 && r.Rehearsal == nil {
		lines = append(lines, fmt.Sprintf("not checked, because their schemas are unknown: %s: \"runlevel rehearse\" "+
			"asks an API server, \"runlevel gate\" a cluster", printable.Few(unchecked, maxUnchecked)))
	}
	return lines
}

// The rules and the kinds that the summary names at most.
const (
	maxSkipped   = 5
	maxUnchecked = 10
)
