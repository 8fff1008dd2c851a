package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/runlevel/runlevel/internal/cli"
	"github.com/runlevel/runlevel/internal/review/fix"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestExamplesOfRulesAreMended fixes the examples of all rules, with the releases before.
func TestExamplesOfRulesAreMended(t *testing.T) {
	pages, err := filepath.Glob("../review/lint/rules/*.txtar")
	if err != nil || len(pages) == 0 {
		t.Fatal("there are no pages of rules: ", err)
	}
	for _, page := range pages {
		archive, err := txtar.ParseFile(page)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".txtar"), func(t *testing.T) {
			t.Chdir(t.TempDir())
			examples := map[string]bool{}
			for _, file := range archive.Files {
				if text, isCut := bytes.CutSuffix(file.Data, []byte("\n\\ No newline at end of file\n")); isCut {
					file.Data = text
				}
				write(t, file.Name, string(file.Data))
				if folder, _, isFile := strings.Cut(file.Name, "/"); isFile && !strings.Contains(folder, ".") {
					examples[folder] = true
				}
			}
			for _, example := range slices.Sorted(maps.Keys(examples)) {
				args := []string{"lint", example, "-o", "json"}
				if _, err := os.Stat(example + ".previous"); err == nil {
					args = append(args, "--previous", example+".previous")
				}
				if _, err := os.Stat(example + ".config"); err == nil {
					args = append(args, "--config", example+".config")
				}
				t.Run(example, func(t *testing.T) { checkMending(t, example, args) })
			}
		})
	}
}

// TestARealReleaseIsMended fixes a copy of the one that RUNLEVEL_TEST_RELEASE names, as it
// is and with its annotations misspelt.
func TestARealReleaseIsMended(t *testing.T) {
	release := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if release == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	for name, spoil := range map[string]func(string) string{
		"as it is": func(text string) string { return text },
		"spoilt": func(text string) string {
			return strings.NewReplacer("\n", "\r\n", `/delete: "true"`, `/delete: yes`, `: "true"`, ": True").Replace(strings.TrimSpace(text))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(release)); err != nil {
				t.Fatal(err)
			}
			for file, text := range textsOf(t, dir) {
				if spoilt := spoil(text); spoilt != text && filepath.Ext(file) == ".yaml" {
					if err := os.WriteFile(filepath.Join(dir, file), []byte(spoilt), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkMending(t, dir, []string{"lint", dir, "-o", "json"})
		})
	}
}

// checkMending fixes a folder. Findings that can be fixed are gone, nothing else is
// found that was not hidden by it, nothing is deleted that was not to be, comments are
// still there, and the second time there is nothing to do.
func checkMending(t *testing.T, folder string, args []string) {
	t.Helper()
	before, _ := runLint(t, args)
	texts, saying := textsOf(t, folder), sayTrue(t, folder)
	after, said := runLint(t, append(args, "--fix"))
	fixed := textsOf(t, folder)

	for _, f := range after.Findings {
		isMendable := slices.Contains([]string{fix.FinalNewline}, f.Rule) || f.Rule == fix.LevelWidth && !strings.Contains(f.Message, "choose") ||
			f.Rule == fix.Malformed && strings.Contains(f.Message, " is the ") || f.Rule == fix.DeleteValue && strings.Contains(strings.ToLower(f.Message), "true,")
		if isMendable && f.In == "" && !strings.Contains(said, "not fixed: "+f.File) {
			t.Errorf("it is not fixed: %s", f)
		}
	}
	for _, f := range after.Findings {
		if !isExpected(f, before.Findings, strings.Contains(said, "\"true\" now")) {
			t.Errorf("it is new: %s", f)
		}
	}
	for object := range tombstones(t, folder) {
		if !saying[object] {
			t.Errorf("%s is deleted, and was not to be", object)
		}
	}
	if before, after := comments(texts), comments(fixed); !slices.Equal(before, after) {
		t.Errorf("comments (-before +after):\n%s", cmp.Diff(before, after))
	}
	if maps.Equal(texts, fixed) {
		return
	}
	again, said := runLint(t, append(args, "--fix"))
	if diff := cmp.Diff(fixed, textsOf(t, folder)); diff != "" || !strings.Contains(said, "nothing to fix") {
		t.Errorf("the second time it says %q, and (-first +second):\n%s", said, diff)
	}
	if len(again.Findings) != len(after.Findings) {
		t.Errorf("the second time there are %d findings, and the first time %d", len(again.Findings), len(after.Findings))
	}
}

// isExpected says whether a finding was there before, or could not be made because
// of one that is fixed.
func isExpected(f lint.Finding, before []lint.Finding, isDeleted bool) bool {
	return isDeleted || slices.ContainsFunc(before, func(b lint.Finding) bool {
		return b.Object == f.Object && (b.Rule == f.Rule || b.Rule == fix.Malformed || b.Rule == fix.DeleteValue)
	})
}

// runLint lints, and returns what is found and what is said beside it.
func runLint(t *testing.T, args []string) (lint.Result, string) {
	t.Helper()
	var out, said bytes.Buffer
	cli.Run(context.Background(), args, cli.Streams{Out: &out, Err: &said})
	var result lint.Result
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		t.Fatalf("%v: %v, %s", args, err, &said)
	}
	return result, said.String()
}

// textsOf are the files of a folder.
func textsOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*", "manifests/*", "release-manifests/*"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || info.IsDir() {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(file, folder+"/")] = string(text)
		}
	}
	return texts
}

// comments are the comments of all files.
func comments(texts map[string]string) []string {
	var found []string
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if _, comment, isCommented := strings.Cut(line, "#"); isCommented {
				found = append(found, strings.TrimRight(comment, "\r\n"))
			}
		}
	}
	slices.Sort(found)
	return found
}

// tombstones are the objects that a folder deletes.
func tombstones(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	read, _, err := payload.Parse(t.Context(), os.DirFS(folder), payload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range read.Manifests {
		if m.IsTombstone() {
			found[m.ID().String()] = true
		}
	}
	return found
}

// sayTrue are the objects whose delete annotation says true, in whatever spelling.
func sayTrue(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	read, _, err := payload.Parse(t.Context(), os.DirFS(folder), payload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range read.Manifests {
		metadata, _ := m.Object().Object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		value := annotations[payload.DeleteAnnotation]
		text, _ := value.(string)
		found[m.ID().String()] = found[m.ID().String()] || value == true || strings.ToLower(strings.TrimSpace(text)) == "true"
	}
	return found
}
