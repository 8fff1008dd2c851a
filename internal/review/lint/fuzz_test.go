package lint_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// FuzzPositions lints any two files as this release and the one before. Whatever they
// hold, each finding is in a line that its file has.
func FuzzPositions(f *testing.F) {
	for _, rule := range lint.Rules() {
		for _, e := range pageExamples(f, rule) {
			f.Add(joinFiles(e.files), joinFiles(e.previous))
		}
	}
	f.Fuzz(func(t *testing.T, now, before []byte) {
		read := func(text []byte) (*payload.Payload, []payload.Problem) {
			files := fstest.MapFS{"0000_50_web_a.yaml": &fstest.MapFile{Data: text}}
			found, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
			if err != nil {
				t.Fatal(err)
			}
			return found, problems
		}
		input := lint.Input{Config: lint.Config{Severities: map[string]lint.Severity{
			"definition":      lint.Off,
			"custom-resource": lint.Off,
		}}}
		input.Payload, input.Problems = read(now)
		input.Previous, _ = read(before)
		result, err := lint.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range append(result.Findings, result.Suppressed...) {
			text := now
			if finding.In == lint.InPrevious {
				text = before
			}
			if lines := bytes.Count(text, []byte("\n")) + 1; finding.Line < 0 || finding.Line > lines {
				t.Errorf("%s: the file has %d lines", finding, lines)
			}
			if strings.ContainsAny(finding.String(), "\n\r\x1b") {
				t.Errorf("%q is more than a line", finding.String())
			}
		}
	})
}

// joinFiles returns all files as one.
func joinFiles(files fstest.MapFS) []byte {
	var texts [][]byte
	for _, file := range files {
		texts = append(texts, file.Data)
	}
	return bytes.Join(texts, []byte("\n---\n"))
}

// FuzzConfig reads any configuration: it is refused in one line that names the file, or it can be used.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{
		"", "kubernetesVersion: 1.34\n", "severities: {dropped: off}\n", "ignore:\n- rule: dropped\n  reason: x\n",
		"ignore: [1]", "ignore: {a: b}", "known: {namespaces: x}", "colour: red", "severities: [a]", "a: b\n---\nc: d",
		"[", "ignore:\n- {rule: dropped, file: '['}",
	} {
		f.Add([]byte(seed))
	}
	files := fstest.MapFS{"0000_50_web_a.yaml": &fstest.MapFile{Data: []byte("a")}}
	f.Fuzz(func(t *testing.T, text []byte) {
		config, err := lint.ParseConfig("the-config", text)
		if err != nil {
			if message := err.Error(); !strings.HasPrefix(message, "the-config: ") || strings.Contains(message, "\n") ||
				strings.Contains(message, "lint.") {
				t.Errorf("%q is not one line that names the file", message)
			}
			return
		}
		read, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lint.Run(t.Context(), lint.Input{Payload: read, Problems: problems, Config: config}); err != nil {
			t.Fatal(err)
		}
	})
}
