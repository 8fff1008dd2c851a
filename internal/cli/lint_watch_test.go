package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/review/lint"
)

// TestChanges has findings in short: severity, file, line, object and message.
func TestChanges(t *testing.T) {
	for name, test := range map[string]struct{ before, after, added, gone string }{
		"nothing":                       {"", "", "", ""},
		"the same":                      {"error a 1 x m", "error a 1 x m", "", ""},
		"a new one":                     {"error a 1 x m", "error a 1 x m, error a 2 y m", "error a 2 y m", ""},
		"one that is gone":              {"error a 1 x m, error a 2 y m", "error a 2 y m", "", "error a 1 x m"},
		"one that has moved":            {"error a 1 x m", "error a 7 x m", "", ""},
		"another file":                  {"error a 1 x m", "error b 1 x m", "error b 1 x m", "error a 1 x m"},
		"another object":                {"error a 1 x m", "error a 1 y m", "error a 1 y m", "error a 1 x m"},
		"another message":               {"error a 1 x m", "error a 1 x n", "error a 1 x n", "error a 1 x m"},
		"another severity":              {"error a 1 x m", "warning a 1 x m", "warning a 1 x m", ""},
		"a third that is alike":         {"error a 1 x m, error a 9 x m", "error a 1 x m, error a 5 x m, error a 9 x m", "error a 5 x m", ""},
		"a second, and both have moved": {"error a 1 x m", "error a 2 x m, error a 3 x m", "error a 3 x m", ""},
		"one of two alike is gone":      {"error a 1 x m, error a 9 x m", "error a 9 x m", "", "error a 1 x m"},
	} {
		t.Run(name, func(t *testing.T) {
			added, gone := changes(findings(test.before), findings(test.after))
			if got := short(added) + " / " + short(gone); got != test.added+" / "+test.gone {
				t.Errorf("new and gone are %q, want %q", got, test.added+" / "+test.gone)
			}
		})
	}
	inPrevious, inPayload := findings("error a 1 x m"), findings("error a 1 x m")
	inPrevious[0].In = lint.InPrevious
	if added, gone := changes(inPrevious, inPayload); len(added) != 1 || len(gone) != 1 {
		t.Errorf("a finding in another release is the same: %v, %v", added, gone)
	}
}

func findings(text string) []lint.Finding {
	var found []lint.Finding
	for name := range strings.SplitSeq(text, ", ") {
		f := lint.Finding{Rule: "rule"}
		if n, _ := fmt.Sscan(name, &f.Severity, &f.File, &f.Line, &f.Object, &f.Message); n > 0 {
			found = append(found, f)
		}
	}
	return found
}

func short(findings []lint.Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, fmt.Sprint(f.Severity, " ", f.File, " ", f.Line, " ", f.Object, " ", f.Message))
	}
	return strings.Join(all, ", ")
}

// TestRunsOfAWatch is what is printed, run after run.
func TestRunsOfAWatch(t *testing.T) {
	locked := errors.New("release has 2 problems:\na: locked\nb: locked")
	looks := []struct {
		found string
		err   error
	}{
		{"error a 1 x m", nil}, {"error a 2 x m", nil}, {"error a 2 x m, warning b 3 y n", nil},
		{"", locked}, {"", locked}, {"error a 2 x m, warning b 3 y n", nil}, {"", locked}, {"", nil},
	}
	for name, test := range map[string]struct {
		all  bool
		want string
	}{
		"what changes": {false, `
a:1:1: error: x: m [rule]
1 error, 0 warnings, 0 notes
00:00:01 watching for changes (1000 ms)
00:00:03 no change; 1 error left (1000 ms)
b:3:1: warning: y: n [rule]
00:00:05 1 new, 0 fixed; 1 error, 1 warning left (1000 ms)
runlevel: release has 2 problems: a: locked; b: locked
00:00:07 nothing could be found (1000 ms)
00:00:10 no change; 1 error, 1 warning left (1000 ms)
runlevel: release has 2 problems: a: locked; b: locked
00:00:12 nothing could be found (1000 ms)
fixed: a: error: x: m [rule]
fixed: b: warning: y: n [rule]
00:00:14 0 new, 2 fixed; nothing left (1000 ms)
`},
		"all": {true, `
00:00:00 looking
a:1:1: error: x: m [rule]
1 error, 0 warnings, 0 notes
00:00:01 watching for changes (1000 ms)
00:00:02 looking
a:2:1: error: x: m [rule]
1 error, 0 warnings, 0 notes
00:00:03 watching for changes (1000 ms)
00:00:04 looking
a:2:1: error: x: m [rule]
b:3:1: warning: y: n [rule]
1 error, 1 warning, 0 notes
00:00:05 watching for changes (1000 ms)
00:00:06 looking
runlevel: release has 2 problems: a: locked; b: locked
00:00:07 nothing could be found (1000 ms)
00:00:08 looking
00:00:09 nothing could be found (1000 ms)
00:00:10 looking
a:2:1: error: x: m [rule]
b:3:1: warning: y: n [rule]
1 error, 1 warning, 0 notes
00:00:11 watching for changes (1000 ms)
00:00:12 looking
runlevel: release has 2 problems: a: locked; b: locked
00:00:13 nothing could be found (1000 ms)
00:00:14 looking
0 errors, 0 warnings, 0 notes
00:00:15 watching for changes (1000 ms)
`},
	} {
		t.Run(name, func(t *testing.T) {
			var printed bytes.Buffer
			var runs int
			w := lintWatch{all: test.all, now: everySecond(), streams: Streams{Out: &printed, Err: &printed}}
			w.lint = func(context.Context) (lintReport, error) {
				now := looks[runs]
				runs++
				return newLintReport(lintRun{result: &lint.Result{Findings: findings(now.found)}}), now.err
			}
			for range looks {
				if err := w.run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), printed.String()); diff != "" {
				t.Errorf("it prints (-want +got):\n%s", diff)
			}
		})
	}
}

// everySecond is a clock that advances each time it is read.
func everySecond() func() time.Time {
	now := time.Date(2026, 1, 1, 0, 0, -1, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

// TestWatching is a day at work: a mistake is made, fixed, the folder goes and comes
// back, and the configuration is written.
func TestWatching(t *testing.T) {
	t.Chdir(t.TempDir())
	good := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\n"
	save := func(file, text string) {
		if err := errors.Join(os.MkdirAll("release", 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	save("release/0000_50_web_01.yaml", good)
	lines := watching(t, lintWatch{paths: []string{"release", lintConfigFile}, now: everySecond(), lint: lookAt("release")})
	awaitLine(t, lines, `watching for changes`)
	save("release/0000_50_web_02.yaml", strings.Replace(good, "web", "bad, annotations: {release.openshift.io/deleted: 'true'}", 1))
	awaitLine(t, lines, `^release/0000_50_web_02.yaml:3:.* error: .*\[delete-misspelt\]$`)
	awaitLine(t, lines, `1 new, 0 fixed; 1 error left`)
	save(lintConfigFile, "ignore: [{rule: delete-misspelt, reason: it is well known}]\n")
	awaitLine(t, lines, `^fixed: release/0000_50_web_02.yaml: error: .*\[delete-misspelt\]$`)
	awaitLine(t, lines, `0 new, 1 fixed; nothing left`)
	save(lintConfigFile, "ignore: [{rule: nope}]\n")
	awaitLine(t, lines, `^`+lintConfigFile+`:1:.* error: .*nope`)
	save(lintConfigFile, "")
	awaitLine(t, lines, `^fixed: `+lintConfigFile+`: error: .*nope`)
	awaitLine(t, lines, `0 new, 1 fixed; 1 error left`)
	if err := os.RemoveAll("release"); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, lines, `^runlevel: .*release`)
	save("release/0000_50_web_01.yaml", good)
	awaitLine(t, lines, `1 fixed; nothing left`)
}

// TestWatchingNothing fails as looking once does.
func TestWatchingNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := watchLint(ctx, Streams{Out: io.Discard, Err: io.Discard}, lintWatch{paths: []string{"release"}, now: everySecond(), lint: lookAt("release")})
	if err == nil || !strings.Contains(err.Error(), "release") {
		t.Errorf("watching a folder that is not there ends with %v", err)
	}
}

// TestWatchingIntoAFile does not look again because of what it has printed.
func TestWatchingIntoAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	file, err := os.Create("printed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	skip := isOutput(Streams{Out: file, Err: io.Discard})
	for name, want := range map[string]bool{"printed.yaml": true, ".": false} {
		info, err := os.Stat(name)
		if err != nil || skip(info) != want {
			t.Errorf("%s is skipped: %t, want %t (%v)", name, !want, want, err)
		}
	}
}

// lookAt reads and lints a folder as the command does.
func lookAt(folder string) func(context.Context) (lintReport, error) {
	return func(ctx context.Context) (lintReport, error) {
		var f lintFlags
		addReleaseFlags(&cobra.Command{}, &f.release)
		return f.report(ctx, folder, io.Discard)
	}
}

// watching watches until the test ends, and then wants no error of being interrupted.
func watching(t *testing.T, w lintWatch) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended, lines := make(chan error, 1), make(chan string, 1000)
	go func() {
		ended <- watchLint(ctx, Streams{Out: in, Err: in}, w)
		in.Close()
	}()
	go func() {
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("interrupted, watching ends with %v", err)
		}
	})
	return lines
}

func awaitLine(t *testing.T, lines <-chan string, pattern string) string {
	t.Helper()
	wanted, deadline := regexp.MustCompile(pattern), time.After(30*time.Second)
	var seen []string
	for {
		select {
		case line, ok := <-lines:
			if seen = append(seen, line); wanted.MatchString(line) {
				return line
			}
			if !ok {
				t.Fatalf("no line is like %q:\n%s", pattern, strings.Join(seen, "\n"))
			}
		case <-deadline:
			t.Fatalf("no line is like %q:\n%s", pattern, strings.Join(seen, "\n"))
		}
	}
}

// TestEditorsUnderstand reads real output with the expressions of docs/editors.md.
func TestEditorsUnderstand(t *testing.T) {
	page, err := os.ReadFile("../../docs/editors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, snippet, _ := strings.Cut(string(page), "```json\n")
	snippet, _, _ = strings.Cut(snippet, "```")
	var file struct {
		Tasks []struct {
			ProblemMatcher []struct {
				Pattern struct {
					Regexp                                string
					File, Line, Column, Severity, Message int
				}
				Background struct{ BeginsPattern, EndsPattern string }
			}
		}
	}
	if err := json.Unmarshal([]byte(snippet), &file); err != nil {
		t.Fatalf("docs/editors.md: %v", err)
	}
	matchers := file.Tasks[0].ProblemMatcher
	begins, ends := regexp.MustCompile(matchers[0].Background.BeginsPattern), regexp.MustCompile(matchers[0].Background.EndsPattern)

	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"0000_50_web_01.yaml": "[\n", "0000_50_web_02.yaml": "# nothing\n", "0000_50_web_03.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"} {
		if err := errors.Join(os.MkdirAll("release", 0o755), os.WriteFile("release/"+name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	report, err := lookAt("release")(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	w := lintWatch{all: true, now: everySecond(), lint: lookAt("release"), streams: Streams{Out: &printed}}
	if err := w.run(t.Context()); err != nil {
		t.Fatal(err)
	}

	var want, got []string
	for _, f := range report.Findings {
		want = append(want, fmt.Sprint(f.File, " ", f.Line, " ", f.Severity))
	}
	lines := strings.Split(strings.TrimSuffix(printed.String(), "\n"), "\n")
	for i, line := range lines {
		if begins.MatchString(line) != (i == 0) || ends.MatchString(line) != (i == len(lines)-1) {
			t.Errorf("line %d begins or ends wrongly: %s", i, line)
		}
		for _, m := range matchers {
			if match := regexp.MustCompile(m.Pattern.Regexp).FindStringSubmatch(line); match != nil {
				lineNumber := "0"
				if m.Pattern.Line > 0 {
					lineNumber = match[m.Pattern.Line]
				}
				got = append(got, match[m.Pattern.File]+" "+lineNumber+" "+match[m.Pattern.Severity])
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 3 || !strings.Contains(strings.Join(want, "\n"), " 0 ") {
		t.Errorf("an editor reads (-want +got):\n%s\nof:\n%s", diff, &printed)
	}
}
