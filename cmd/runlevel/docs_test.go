package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestTranscriptsOfTheDocumentation looks for the output of scripts in the pages that show it.
func TestTranscriptsOfTheDocumentation(t *testing.T) {
	for page, transcripts := range map[string][]string{
		"plan.md": {"plan-cluster.txtar/update.txt"},
		"diff.md": {"plan-cluster.txtar/edited.txt", "plan-cluster.txtar/diff.txt"},
		"why.md": {"why-blocked.txtar/file.txt", "why-retry.txtar/dead.txt", "why-deletes.txtar/held.txt",
			"why-changed.txtar/changed.txt", "watch-waits.txtar/missing.txt", "why-release.txtar/failed.txt"},
		"inspect.md":           {"inspect.txtar/report.txt"},
		"migrate-kubectl.md":   {"migrate-kubectl.txtar/diff.txt"},
		"migrate-helm.md":      {"migrate-helm.txtar/diff.txt", "migrate-helm.txtar/graph.txt"},
		"migrate-flux.md":      {"migrate-flux.txtar/diff.txt"},
		"migrate-argo-cd.md":   {"migrate-argo-cd.txtar/diff.txt", "migrate-argo-cd.txtar/graph.txt"},
		"migrate-kapp.md":      {"migrate-kapp.txtar/graph.txt"},
		"migrate-kustomize.md": {"migrate-kustomize.txtar/diff.txt", "migrate-kustomize.txtar/plan.txt"},
		"install.md":           {"install.txtar/installed.txt"},
		"apply.md":             {"apply-dry-run.txtar/reconciled.txt", "apply-dry-run.txtar/would.txt"},
		"hooks.md":             {"hooks.txtar/plan.txt", "hooks.txtar/why.txt"},
		"control-plane.md":     {"machines-control-plane.txtar/plan.txt"},
		"fleet.md":             {"list-contexts.txtar/clusters.txt"},
		"status-command.md":    {"status.txtar/running.txt", "status.txtar/held.txt"},
	} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, transcript := range transcripts {
			script, file := filepath.Split(transcript)
			archive, err := txtar.ParseFile(filepath.Join("testdata", filepath.Clean(script)))
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == file })
			if i < 0 || !bytes.Contains(text, archive.Files[i].Data) {
				t.Errorf("docs/%s does not have the output of runlevel: %s", page, transcript)
			}
		}
	}
}

// TestPagesOnMigrationAreTried looks for the commands of each page in the script that tries it from its first line to
// its last. Commands of programs that tests can't run are in its file not-run.sh.
func TestPagesOnMigrationAreTried(t *testing.T) {
	for _, tool := range []string{"kubectl", "helm", "kustomize", "argo-cd", "flux", "kapp"} {
		page, err := os.ReadFile("../../docs/migrate-" + tool + ".md")
		if err != nil {
			t.Fatal(err)
		}
		script, err := os.ReadFile("testdata/migrate-" + tool + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllSubmatch(page, -1) {
			for line := range strings.Lines(string(block[1])) {
				if !strings.Contains(string(script), strings.TrimSpace(line)+"\n") {
					t.Errorf("docs/migrate-%s.md: testdata/migrate-%[1]s.txtar does not try %q", tool,
						strings.TrimSpace(line))
				}
			}
		}
	}
}

// TestDocumentedTestsExist looks for each test that the documentation names.
func TestDocumentedTestsExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	var known strings.Builder
	if err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && filepath.Ext(path) != ".txtar" {
			return err
		}
		text, err := os.ReadFile(path)
		known.WriteString("func " + filepath.Base(path) + "(" + string(text))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Test\\w+|[\\w-]+\\.txtar)`").FindAllSubmatch(page, -1) {
		if !strings.Contains(known.String(), "func "+string(name[1])+"(") {
			t.Errorf("docs/security.md names %s, which does not exist", name[1])
		}
	}
}
