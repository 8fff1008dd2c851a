package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/runlevel/runlevel/internal/cli/watch"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// What --watch prints.
const (
	watchChanges = "changes"
	watchAll     = "all"
)

// watchSource lints what is on disk again and again.
func (f *lintFlags) watchSource(ctx context.Context, ref string, streams Streams) error {
	if _, err := os.Stat(ref); err != nil {
		return misuse{fmt.Errorf("--watch is for what is on disk, and %s is not", ref)}
	}
	if f.baseline.write || f.fix.isOn() || f.format != asText {
		return misuse{errors.New("--watch prints text, and does nothing else: leave out --fix, --write-baseline and --output")}
	}
	f.release.cache = loader.ImageCache{}
	w := lintWatch{all: f.watch == watchAll, suppressed: f.suppressed, now: time.Now}
	config := lintConfigFile
	if f.isConfigured {
		config = f.config
	}
	for _, path := range []string{ref, config, f.baseline.file, f.previous, f.component.into} {
		if _, err := os.Stat(path); path == config || path == f.baseline.file && path != "" || err == nil {
			w.paths = append(w.paths, path)
		}
	}
	progress := streams.Err
	w.lint = func(ctx context.Context) (lintReport, error) {
		report, err := f.report(ctx, ref, progress)
		progress = io.Discard // it would say the same again and again
		return report, err
	}
	return watchLint(ctx, streams, w)
}

// report looks once, and has what was found as it is printed.
func (f *lintFlags) report(ctx context.Context, ref string, progress io.Writer) (lintReport, error) {
	seen, err := f.lint(ctx, ref, progress)
	if err != nil {
		return lintReport{}, err
	}
	return newLintReport(seen), nil
}

// A lintWatch is a lint that is done again and again.
type lintWatch struct {
	paths      []string // what is read, so that it is read again when it changes
	all        bool     // print all findings each time: editors forget those of the time before
	suppressed bool
	now        func() time.Time
	lint       func(context.Context) (lintReport, error)

	streams   Streams
	before    *lintReport // the last that could be made
	lastError string      // why none could be made the last time
}

// watchLint prints what is found, and then what is found after each change, until the
// context ends: that is how to stop it, and no failure. What keeps it from looking the
// first time is one. Later it is told, and looked again.
func watchLint(ctx context.Context, streams Streams, w lintWatch) error {
	w.streams = streams
	set := watch.Set{Paths: w.paths, Within: []string{"manifests", "release-manifests"}, Skip: isOutput(streams)}
	err := watch.Paths(ctx, set, func() error { return w.run(ctx) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// isOutput says which files hold what is printed: else each look would lead to another.
func isOutput(streams Streams) func(os.FileInfo) bool {
	var outputs []os.FileInfo
	for _, stream := range []io.Writer{streams.Out, streams.Err} {
		if file, ok := stream.(*os.File); ok {
			if info, err := file.Stat(); err == nil {
				outputs = append(outputs, info)
			}
		}
	}
	return func(info os.FileInfo) bool {
		return slices.ContainsFunc(outputs, func(output os.FileInfo) bool { return os.SameFile(info, output) })
	}
}

// run looks once, and prints what comes of it, with a line at the end that says how long
// it took. All is printed between two such lines.
func (w *lintWatch) run(ctx context.Context) error {
	began := w.now()
	if w.all {
		if _, err := fmt.Fprintf(w.streams.Out, "%s looking\n", began.Format(time.TimeOnly)); err != nil {
			return err
		}
	}
	report, err := w.lint(ctx)
	if err != nil && (w.before == nil || ctx.Err() != nil) {
		return err
	}
	var text strings.Builder
	end := w.outcome(&text, &report, err)
	if end != "" {
		now := w.now()
		fmt.Fprintf(&text, "%s %s (%d ms)\n", now.Format(time.TimeOnly), end, now.Sub(began).Milliseconds())
	}
	_, err = io.WriteString(w.streams.Out, text.String())
	return err
}

// outcome writes what came of looking, and returns what it comes to. That is "" when
// the same trouble has been told before.
func (w *lintWatch) outcome(text io.Writer, report *lintReport, err error) string {
	if err != nil {
		told := w.lastError
		w.lastError = oneLine(err)
		if w.lastError != told {
			fmt.Fprintln(w.streams.Err, "runlevel:", w.lastError)
		}
		if w.lastError != told || w.all {
			return "nothing could be found"
		}
		return ""
	}
	w.lastError = ""
	before := w.before
	w.before = report
	if before == nil || w.all {
		_ = report.text(text, true, w.suppressed) // into memory
		return "watching for changes"
	}
	added, gone := changes(before.Findings, report.Findings)
	for _, f := range gone {
		f.Line = 0 // it was there
		fmt.Fprintln(text, "fixed:", f)
	}
	for _, f := range added {
		fmt.Fprintln(text, f)
	}
	return summary(len(added), len(gone), report.Counts)
}

// oneLine is an error in one line.
func oneLine(err error) string {
	return printable.Line(strings.NewReplacer(":\n", ": ", "\n", "; ").Replace(err.Error()))
}

// summary says what has changed, and what there is.
func summary(added, gone int, counts map[lint.Severity]int) string {
	news := "no change"
	if added+gone > 0 {
		news = fmt.Sprintf("%d new, %d fixed", added, gone)
	}
	var left []string
	for _, thing := range []struct {
		severity lint.Severity
		name     string
	}{{lint.Error, "error"}, {lint.Warning, "warning"}, {lint.Info, "note"}} {
		if count := counts[thing.severity]; count > 0 {
			left = append(left, printable.Count(count, thing.name))
		}
	}
	if len(left) == 0 {
		left = []string{"nothing"}
	}
	return fmt.Sprintf("%s; %s left", news, strings.Join(left, ", "))
}

// A findingIdentity is equal for findings of two runs that are the same finding.
type findingIdentity struct {
	lint.FindingKey
	severity     lint.Severity
	line, column int
}

// changes says which findings are new, and which are gone. One that has moved is the
// same; if there are several alike, those that have not moved are. One that has become
// more or less severe is new, and the old one is not gone.
func changes(before, after []lint.Finding) (added, gone []lint.Finding) {
	inPlace := func(f lint.Finding) findingIdentity {
		return findingIdentity{f.Key(), f.Severity, f.Line, f.Column}
	}
	anywhere := func(f lint.Finding) findingIdentity {
		f.Line, f.Column = 0, 0
		return inPlace(f)
	}
	anyhow := func(f lint.Finding) findingIdentity {
		f.Severity = ""
		return anywhere(f)
	}
	added, gone = without(after, before, inPlace), without(before, after, inPlace)
	added, gone = without(added, gone, anywhere), without(gone, added, anywhere)
	return added, without(gone, added, anyhow)
}

// without takes those that others have, too, out of findings, one for one.
func without(findings, others []lint.Finding, as func(lint.Finding) findingIdentity) []lint.Finding {
	count := map[findingIdentity]int{}
	for _, f := range others {
		count[as(f)]++
	}
	var left []lint.Finding
	for _, f := range findings {
		if count[as(f)]--; count[as(f)] < 0 {
			left = append(left, f)
		}
	}
	return left
}
