package lint

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// asGitHub are the workflow commands with which GitHub shows findings beside a change.
const asGitHub core.Output = "github"

// github writes a workflow command for each finding, or for each cause of many, the most severe first, as GitHub shows
// no more than ten of a kind in a step; and then the summary. A release in an image has no files to show findings in.
func (r Report) github(out io.Writer, all, inFolder bool) error {
	var text strings.Builder
	worst := slices.SortedStableFunc(slices.Values(r.Findings), func(a, b lint.Finding) int {
		order := []lint.Severity{lint.Error, lint.Warning, lint.Info}
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	for _, fold := range foldFindings(worst, all) {
		f := fold.First
		if len(fold.Others) > 0 {
			f.Message += " (" + listPlaces(fold.Others) + ")"
		}
		text.WriteString(githubCommand(f, shownAt(f, inFolder)) + "\n")
	}
	_, err := io.WriteString(out, text.String()+r.summary())
	return err
}

// shownAt returns the place where GitHub shows a finding; nil if its file is not in the repository. A finding in the
// previous payload is shown at the corresponding place in this one.
func shownAt(f lint.Finding, inFolder bool) *lint.Place {
	place := &lint.Place{File: f.File, Line: f.Line, In: f.In}
	if f.In == lint.InPrevious && f.Near != nil {
		place = f.Near
	}
	isShown := false
	switch place.In {
	case lint.InPayload:
		isShown = inFolder
	case lint.InConfig, lint.InBaseline:
		isShown = filepath.IsLocal(place.File)
	}
	if !isShown || !printable.IsHarmless([]byte(place.File)) {
		return nil
	}
	return place
}

// githubCommand returns the command that shows a finding at a place. If place is nil or not the place of the finding,
// the message names the place.
func githubCommand(f lint.Finding, place *lint.Place) string {
	command := map[lint.Severity]string{lint.Error: "error", lint.Warning: "warning", lint.Info: "notice"}[f.Severity]
	var properties []string
	add := func(name string, value any) {
		properties = append(properties, name+"="+escapeProperty(fmt.Sprint(value)))
	}
	isOwn := place != nil && place.In == f.In
	message := f.String()
	if isOwn && f.Object != "" {
		message = f.Object + ": " + f.Message
	} else if isOwn {
		message = f.Message
	}
	if place != nil {
		add("file", place.File)
		if place.Line > 0 {
			add("line", place.Line)
		}
		if isOwn && f.Column > 0 {
			add("col", f.Column)
		}
	}
	add("title", f.Rule)
	return fmt.Sprintf("::%s %s::%s", command, strings.Join(properties, ","), escapeData(printable.Line(message)))
}

// escapeData escapes the message of a command, as GitHub's runner requires.
func escapeData(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(text)
}

// escapeProperty escapes a property of a command, which also ends at a colon or a comma.
func escapeProperty(text string) string {
	return strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escapeData(text))
}
