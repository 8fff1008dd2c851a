package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// asGitHub are the commands that make GitHub show findings beside a change.
const asGitHub output = "github"

// github writes a workflow command for each finding, or for each cause of many, the worst first, as GitHub shows no
// more than ten of a kind in a step; and then the summary. What is not in a folder, but
// in an image, has no files to show them in.
func (r lintReport) github(out io.Writer, all, inFolder bool) error {
	var text strings.Builder
	worst := slices.SortedStableFunc(slices.Values(r.Findings), func(a, b lint.Finding) int {
		order := []lint.Severity{lint.Error, lint.Warning, lint.Info}
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	for _, fold := range folds(worst, all) {
		f := fold.first
		if len(fold.others) > 0 {
			f.Message += " (" + others(fold.others) + ")"
		}
		text.WriteString(githubCommand(f, shownAt(f, inFolder)) + "\n")
	}
	_, err := io.WriteString(out, text.String()+r.summary())
	return err
}

// shownAt returns the place where GitHub shows a finding; nil if its file is not in the repository. What only the previous
// payload has is shown where it belongs in this one.
func shownAt(f lint.Finding, inFolder bool) *lint.Place {
	at := &lint.Place{File: f.File, Line: f.Line, In: f.In}
	if f.In == lint.InPrevious && f.Near != nil {
		at = f.Near
	}
	isShown := false
	switch at.In {
	case lint.InPayload:
		isShown = inFolder
	case lint.InConfig, lint.InBaseline:
		isShown = filepath.IsLocal(at.File)
	}
	if !isShown || !printable.IsHarmless([]byte(at.File)) {
		return nil
	}
	return at
}

// githubCommand is the command for a finding that is shown somewhere. Where that is not its own place, or nowhere, the
// message has it.
func githubCommand(f lint.Finding, at *lint.Place) string {
	command := map[lint.Severity]string{lint.Error: "error", lint.Warning: "warning", lint.Info: "notice"}[f.Severity]
	var properties []string
	add := func(name string, value any) {
		properties = append(properties, name+"="+escapeProperty(fmt.Sprint(value)))
	}
	isOwn := at != nil && at.In == f.In
	message := f.String()
	if isOwn && f.Object != "" {
		message = f.Object + ": " + f.Message
	} else if isOwn {
		message = f.Message
	}
	if at != nil {
		add("file", at.File)
		if at.Line > 0 {
			add("line", at.Line)
		}
		if isOwn && f.Column > 0 {
			add("col", f.Column)
		}
	}
	add("title", f.Rule)
	return fmt.Sprintf("::%s %s::%s", command, strings.Join(properties, ","), escapeData(printable.Line(message)))
}

// escapeData escapes what the line of a command ends with, as GitHub's runner wants it.
func escapeData(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

// escapeProperty escapes a property of a command, which more characters would end.
func escapeProperty(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(text))
}
