package lint_test

import (
	"os"
	"testing"

	"github.com/runlevel/runlevel/pkg/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// BenchmarkLint looks at a real release: what it costs beside loading it, without the
// schemas and with them.
func BenchmarkLint(b *testing.B) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		b.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	load := func() lint.Input {
		read, problems, err := payload.Parse(b.Context(), os.DirFS(folder), payload.Options{KeepText: true})
		if err != nil {
			b.Fatal(err)
		}
		return lint.Input{Payload: read, Problems: problems}
	}
	run := func(b *testing.B, off ...string) {
		severities := map[string]lint.Severity{}
		for _, rule := range off {
			severities[rule] = lint.Off
		}
		for b.Loop() {
			input := load()
			input.Config.Severities = severities
			if _, err := lint.Run(b.Context(), input); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			load()
		}
	})
	b.Run("load and lint without schemas", func(b *testing.B) { run(b, "definition", "custom-resource", "unknown-field") })
	b.Run("load and lint", func(b *testing.B) { run(b) })
}
