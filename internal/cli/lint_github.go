package cli

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/pkg/lint"
	"github.com/runlevel/runlevel/pkg/printable"
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
	for _, one := range folds(worst, all) {
		f := one.first
		if len(one.others) > 0 {
			f.Message += " (" + others(one.others) + ")"
		}
		isShown := inFolder
		if f.In != lint.InPayload {
			isShown = f.In != lint.InPrevious && f.In != lint.InRelease && filepath.IsLocal(f.File)
		}
		isShown = isShown && printable.IsHarmless([]byte(f.File))
		text.WriteString(githubCommand(f, isShown) + "\n")
	}
	_, err := io.WriteString(out, text.String()+r.summary())
	return err
}

// githubCommand is the command for a finding. Where GitHub can't show its file, the
// message says the place.
func githubCommand(f lint.Finding, isShown bool) string {
	command := map[lint.Severity]string{lint.Error: "error", lint.Warning: "warning", lint.Info: "notice"}[f.Severity]
	var properties []string
	add := func(name string, value any) {
		properties = append(properties, name+"="+escapeProperty(fmt.Sprint(value)))
	}
	message := f.Message
	if f.Object != "" {
		message = f.Object + ": " + message
	}
	if isShown {
		add("file", f.File)
		if f.Line > 0 {
			add("line", f.Line)
		}
		if f.Column > 0 {
			add("col", f.Column)
		}
	} else {
		message = f.String()
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
