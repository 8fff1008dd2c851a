package lint_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

var update = flag.Bool("update", false, "write the findings of rules into their pages")

// TestRules runs each rule on the payloads of its page. A payload is a folder of the
// archive; NAME.previous is the one before it, NAME.config its configuration,
// NAME.baseline its baseline, and NAME.want its findings, for the first one "want". Where nothing is wanted, no
// rule may find an error either.
func TestRules(t *testing.T) {
	for _, rule := range lint.Rules() {
		if rule.NeedsRehearsal() {
			continue // the tests of package rehearse run it
		}
		t.Run(rule.ID, func(t *testing.T) {
			name := pageOf(rule)
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			examples := examplesOf(archive)
			fires, quiet := 0, 0
			for _, example := range examples {
				findings := example.lint(t)
				got := linesOf(findings, rule.ID)
				if got == "" {
					quiet++
					if errors := errorsOf(findings); errors != "" && !strings.HasPrefix(example.name, "bad") {
						t.Errorf("%s: other rules find\n%s", example.name, errors)
					}
				} else {
					fires++
				}
				if *update {
					example.setWant(archive, got)
				} else if diff := cmp.Diff(example.want, got); diff != "" {
					t.Errorf("the findings of %s differ (-want +got):\n%s", example.name, diff)
				}
			}
			if fires < 1 || quiet < 2 {
				t.Errorf("it has %d examples that it fires on, and %d that it does not: it needs one, and two, of "+
					"which one is nearly wrong", fires, quiet)
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func pageOf(rule lint.Rule) string { return filepath.Join("rules", rule.ID+".txtar") }

// pageExamples are those of a rule's page.
func pageExamples(t testing.TB, rule lint.Rule) []*example {
	t.Helper()
	archive, err := txtar.ParseFile(pageOf(rule))
	if err != nil {
		t.Fatal(err)
	}
	return examplesOf(archive)
}

// TestEveryPageHasARule, so that none is left behind.
func TestEveryPageHasARule(t *testing.T) {
	files, err := filepath.Glob("rules/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		id := strings.TrimSuffix(filepath.Base(file), ".txtar")
		if _, found := lint.FindRule(id); !found {
			t.Errorf("%s is the page of no rule", file)
		}
	}
}

// An example is a payload to lint, and the expected findings.
type example struct {
	name            string
	files, previous fstest.MapFS
	config          []byte
	baseline        []byte // nil if there is none
	want            string
}

// examplesOf are those of an archive, in order.
func examplesOf(archive *txtar.Archive) []*example {
	var names []string
	found := map[string]*example{}
	get := func(name string) *example {
		if found[name] == nil {
			names = append(names, name)
			found[name] = &example{name: name, files: fstest.MapFS{}}
		}
		return found[name]
	}
	for _, file := range archive.Files {
		if text, isCut := bytes.CutSuffix(file.Data, []byte("\n\\ No newline at end of file\n")); isCut {
			file.Data = text // as in diffs: in an archive all files end with a line break
		}
		folder, path, isFile := strings.Cut(file.Name, "/")
		base, key, _ := strings.Cut(folder, ".")
		switch {
		case file.Name == "want":
			get("bad").want = string(file.Data)
		case !isFile && key == "want":
			get(base).want = string(file.Data)
		case !isFile && key == "config":
			get(base).config = file.Data
		case !isFile && key == "baseline":
			get(base).baseline = file.Data
		case !isFile && slices.Contains([]string{"shows", "tried", "alone"}, key): // for package mistakes
		case key == "previous":
			e := get(base)
			if e.previous == nil {
				e.previous = fstest.MapFS{}
			}
			e.previous[path] = &fstest.MapFile{Data: file.Data}
		default:
			get(base).files[path] = &fstest.MapFile{Data: file.Data}
		}
	}
	var examples []*example
	for _, name := range names {
		examples = append(examples, found[name])
	}
	return examples
}

// setWant writes the findings into the archive.
func (e *example) setWant(archive *txtar.Archive, got string) {
	name := e.name + ".want"
	if e.name == "bad" {
		name = "want"
	}
	last := 0
	for i, file := range archive.Files {
		if file.Name == name {
			archive.Files[i].Data = []byte(got)
			return
		}
		if folder, _, _ := strings.Cut(file.Name, "/"); folder == e.name || strings.HasPrefix(folder, e.name+".") {
			last = i + 1
		}
	}
	if got != "" {
		archive.Files = slices.Insert(archive.Files, last, txtar.File{Name: name, Data: []byte(got)})
	}
}

// lint lints an example with all rules.
func (e *example) lint(t *testing.T) []lint.Finding {
	t.Helper()
	return run(t, e.input(t)).Findings
}

func run(t *testing.T, input lint.Input) *lint.Result {
	t.Helper()
	result, err := lint.Run(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// input returns the input of lint for an example.
func (e *example) input(t *testing.T) lint.Input {
	t.Helper()
	config, err := lint.ParseConfig("config", e.config)
	if err != nil {
		t.Fatal(err)
	}
	input := lint.Input{Config: config}
	if e.baseline != nil {
		if input.Baseline, err = lint.ParseBaseline(".runlevel-baseline", e.baseline); err != nil {
			t.Fatal(err)
		}
	}
	if input.Payload, input.Problems, err = payload.Parse(t.Context(), e.files,
		payload.Options{KeepText: true}); err != nil {
		t.Fatal(err)
	}
	if e.previous != nil {
		if input.Previous, _, err = payload.Parse(t.Context(), e.previous,
			payload.Options{KeepText: true}); err != nil {
			t.Fatal(err)
		}
	}
	return input
}

// linesOf are the findings of a rule, one a line.
func linesOf(findings []lint.Finding, rule string) string {
	var lines strings.Builder
	for _, f := range findings {
		if f.Rule == rule {
			fmt.Fprintln(&lines, f)
		}
	}
	return lines.String()
}

// errorsOf are the errors among findings.
func errorsOf(findings []lint.Finding) string {
	lines := map[string]bool{}
	for _, f := range findings {
		isAbridged := strings.HasPrefix(f.Rule, "invalid-") // examples leave out fields that their rule is not about
		if f.Severity == lint.Error && !isAbridged {
			lines[f.String()] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}
