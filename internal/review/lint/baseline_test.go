package lint_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestBaselineIsWrittenForReview compares a whole baseline: sorted, counted,
// and the same text whatever the order of findings.
func TestBaselineIsWrittenForReview(t *testing.T) {
	found := []lint.Finding{
		{
			Rule:    "dropped",
			File:    "a.yaml",
			In:      lint.InPrevious,
			Object:  "ConfigMap shop/a",
			Line:    3,
			Message: "it was removed",
		},
		{
			Rule:    "unused-ignore",
			File:    "/home/someone/.runlevel-lint",
			In:      lint.InConfig,
			Line:    2,
			Message: "duplicate finds nothing here",
		},
		{Rule: "no-namespace", File: "b.yaml", Object: "ConfigMap a", Line: 9, Message: "second: write a namespace"},
		{Rule: "duplicate", File: "b.yaml", Object: "ConfigMap a", Line: 9, Message: "it is there twice"},
		{Rule: "no-namespace", File: "b.yaml", Object: "ConfigMap a", Line: 1, Message: "first: write a namespace"},
		{Rule: "unreadable", File: "a.yaml", Line: 1, Message: "a tab"},
		{Rule: "stale-baseline", File: "baseline", In: lint.InBaseline, Message: "of the one before"},
	}
	text := writeBaseline(t, found)
	_, got, _ := strings.Cut(text, "# the message is for readers.\n")
	want := `version: 1
findings:
- file: a.yaml
  rule: unreadable
  message: a tab
- file: b.yaml
  rule: duplicate
  object: ConfigMap a
  message: it is there twice
- file: b.yaml
  rule: no-namespace
  object: ConfigMap a
  count: 2
  message: 'first: write a namespace'
- file: .runlevel-lint
  in: config
  rule: unused-ignore
  message: duplicate finds nothing here
- file: a.yaml
  in: previous
  rule: dropped
  object: ConfigMap shop/a
  message: it was removed
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the baseline differs (-want +got):\n%s", diff)
	}
	slices.Reverse(found)
	if diff := cmp.Diff(text, writeBaseline(t, found)); diff != "" {
		t.Errorf("another order makes another text:\n%s", diff)
	}
	if text := writeBaseline(t, nil); !strings.HasSuffix(text, "\nversion: 1\nfindings: []\n") {
		t.Errorf("a baseline of nothing is\n%s", text)
	}
}

// TestBaselineAcceptsItsOwnFindings: for the example of each rule, the baseline accepts its
// findings, and no others: if it has half of the findings, the other half remains.
func TestBaselineAcceptsItsOwnFindings(t *testing.T) {
	for _, rule := range lint.Rules() {
		e := pageExamples(t, rule)[0]
		e.baseline = nil
		found := e.lint(t)
		e.baseline = []byte(writeBaseline(t, found))
		if remaining := e.lint(t); len(remaining) > 0 {
			t.Errorf("%s: the baseline\n%s leaves %v", rule.ID, e.baseline, remaining)
		}
		half := found[:len(found)/2]
		e.baseline = []byte(writeBaseline(t, half))
		if remaining := e.lint(t); len(remaining) != len(found)-len(half) {
			t.Errorf("%s: got %d of %d findings with a baseline of %d", rule.ID, len(remaining), len(found), len(half))
		}
	}
}

// TestBaselineSurvivesEdits: lines and words may change, and a third of the findings
// twice is new.
func TestBaselineSurvivesEdits(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  namespace: kube-system\n  annotations:\n"
	misspelt := func(names ...string) []byte {
		text := head
		for _, name := range names {
			text += "    release.openshift.io/" + name + ": \"true\"\n"
		}
		return []byte(text)
	}
	lintIt := func(baseline string, text []byte) *lint.Result {
		t.Helper()
		input := lint.Input{}
		var err error
		if input.Baseline, err = lint.ParseBaseline("dir/baseline", []byte(baseline)); err != nil {
			t.Fatal(err)
		}
		files := fstest.MapFS{"0000_50_web_a.yaml": &fstest.MapFile{Data: text}}
		if input.Payload, input.Problems, err = payload.Parse(t.Context(), files,
			payload.Options{KeepText: true}); err != nil {
			t.Fatal(err)
		}
		result, err := lint.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	const none = "version: 1\nfindings: []\n"
	baseline := writeBaseline(t, lintIt(none, misspelt("deleted", "deletes")).Findings)
	edited := append([]byte("# a comment\n\n"), misspelt("Delete", "deletes")...)
	result := lintIt(baseline, edited)
	if len(result.Findings) > 0 || len(result.Suppressed) != 2 {
		t.Fatalf("%v are new, and %v known", result.Findings, result.Suppressed)
	}
	want := &lint.Suppression{Reason: "known in the baseline", File: "dir/baseline", Line: 7, In: lint.InBaseline}
	if diff := cmp.Diff(want, result.Suppressed[0].Suppressed); diff != "" {
		t.Errorf("the suppressions differ (-want +got):\n%s", diff)
	}
	result = lintIt(baseline, misspelt("Delete", "deletes", "deleted"))
	if len(result.Findings) != 1 || len(result.Suppressed) != 2 {
		t.Errorf("of three findings %v are new, and %v known", result.Findings, result.Suppressed)
	}
}

// TestRefusedBaselines: each is refused in one line.
func TestRefusedBaselines(t *testing.T) {
	for text, want := range map[string]string{
		"":             `b: this is not a baseline: it has no "version: 1"`,
		"findings: []": `b: this is not a baseline: it has no "version: 1"`,
		"just a text":  "b: line 1: this must be a mapping",
		"- a":          "b: line 1: this must be a mapping",
		"version: 2\nrules: {}": "b: it is of version 2, and this runlevel reads and writes 1: " +
			"use the runlevel that wrote it, or write it again",
		"version: {a: b}": "b: it is of version ?, and this runlevel reads and writes 1: use the " +
			"runlevel that wrote it, or write it again",
		"version: '1'":                "b: line 1: this must be a number",
		"version: 1\nfinding: []":     `b: line 2: unknown key "finding" here: there are version and findings`,
		"version: 1\nfindings: {}":    "b: line 2: this must be a list of entries",
		"version: 1\nfindings:\n-\n":  "b: findings has an empty entry: write a file and a rule, or drop it",
		"version: 1\nfindings: [a]":   "b: line 2: this must be a mapping",
		"version: 1\n---\nversion: 1": `b: line 2: the file has one document only: remove "---" and everything below it`,
		"version: 1\n<<<<<<< HEAD\n":  `b: line 2: a merge conflict begins here: resolve it, and remove its markers "<<<<<<<", "=======" and ">>>>>>>"`,
		entry(
			"{file: a}",
		): "b: line 3: this entry accepts nothing: write its file and its rule",
		entry("{rule: dropped}"): "b: line 3: this entry accepts nothing: write its file and its rule",
		entry(
			"{file: a, rule: b, line: 1}",
		): `b: line 3: unknown key "line" here: there are file, in, rule, object, count and message`,
		entry("{file: a, rule: b, count: many}"): "b: line 3: this must be a number",
		entry("{file: a, rule: b, count: 0}"): "b: line 3: count is 0, and must be 1 or more: drop the entry " +
			"if there are none",
		entry("{file: a, rule: b, in: " +
			"baseline}"): `b: line 3: in is "baseline", and must be previous, release or config, or left out`,
		entry("{file: [a], rule: b}"): "b: line 3: this must be a string",
		entry("{file: a, rule: b}\n  colour: green"): "b: line 3: this line or one below is not indented as its " +
			"neighbours, or has more behind its value: indent it alike, or put the value in quotes",
		"version: 1\nversion: 1": `b: line 2: the key "version" occurs twice: leave one out`,
	} {
		_, err := lint.ParseBaseline("b", []byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func entry(text string) string { return "version: 1\nfindings:\n- " + text + "\n" }

func writeBaseline(t testing.TB, findings []lint.Finding) string {
	t.Helper()
	var out bytes.Buffer
	if err := lint.WriteBaseline(&out, findings); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// FuzzBaseline reads any baseline: it is refused in one line that names the file, or it can be used.
func FuzzBaseline(f *testing.F) {
	for _, seed := range []string{
		"", "version: 1", "version: 2\n", "version: [1]\n", entry("{file: a, rule: dropped, count: 2, in: previous}"),
		entry("{file: 0000_50_web_a.yaml, rule: not-a-manifest}"), entry("&a {file: a, rule: b}\n- *a"), "[",
		"version: 1\n---\nversion: 1",
	} {
		f.Add([]byte(seed))
	}
	files := fstest.MapFS{"0000_50_web_a.yaml": &fstest.MapFile{Data: []byte("a")}}
	f.Fuzz(func(t *testing.T, text []byte) {
		baseline, err := lint.ParseBaseline("the-baseline", text)
		if err != nil {
			if message := err.Error(); !strings.HasPrefix(message, "the-baseline: ") ||
				strings.Contains(message, "\n") || strings.Contains(message, "lint.") {
				t.Errorf("%q is not one line that names the file", message)
			}
			return
		}
		read, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lint.Run(t.Context(),
			lint.Input{Payload: read, Problems: problems, Baseline: baseline}); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzWriteBaseline writes findings with any names. The baseline can be read again, accepts all
// of that, and is written the same.
func FuzzWriteBaseline(f *testing.F) {
	f.Add("0000_50_web_a.yaml", "ConfigMap shop/a", "it is: wrong", uint8(2))
	f.Add("a # b\n- c", "'", "\"\t\\ \u2028", uint8(1))
	f.Add("\xff", "null", "~", uint8(3))
	f.Fuzz(func(t *testing.T, file, object, message string, count uint8) {
		if file == "" || count == 0 {
			return // no finding is
		}
		input := lint.Input{Payload: &payload.Payload{}}
		for range count {
			input.Problems = append(input.Problems,
				payload.Problem{Cause: payload.Unreadable, File: file, Object: object, Message: message})
		}
		first, err := lint.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		text := writeBaseline(t, first.Findings)
		if input.Baseline, err = lint.ParseBaseline("baseline", []byte(text)); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		second, err := lint.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		if len(second.Findings) > 0 || len(second.Suppressed) != len(first.Findings) {
			t.Errorf("%v are new, and %d of %d known, with\n%s", second.Findings, len(second.Suppressed),
				len(first.Findings), text)
		}
		if again := writeBaseline(t, second.Suppressed); again != text {
			t.Errorf("baseline differs after a round trip:\n%s\n%s", text, again)
		}
	})
}
