package rehearse_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/rehearse"
	"github.com/runlevel/runlevel/internal/review/lint"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestMistakes rehearses all mistakes that an API server refuses at once, each in a branch of the shop, and compares
// the findings about them with testdata/mistakes.txt. So no mistake may hide another one.
func TestMistakes(t *testing.T) {
	all, err := mistakes.All()
	if err != nil {
		t.Fatal(err)
	}
	shop, err := mistakes.Shop()
	if err != nil {
		t.Fatal(err)
	}
	before, after := fstest.MapFS{}, fstest.MapFS{}
	// no container runs
	all = slices.DeleteFunc(all, func(m mistakes.Mistake) bool { return m.Group == mistakes.Outage })
	for i, m := range all {
		release, changed, err := m.Release()
		if err != nil {
			t.Fatal(err)
		}
		if m.Group == mistakes.Fine {
			changed = slices.Collect(maps.Keys(shop))
		}
		maps.Copy(after, branch(release, changed, i))
		if m.Group != mistakes.Create && m.Group != mistakes.Within {
			maps.Copy(before, branch(shop, changed, i))
		}
	}
	sandboxtest.NeedControlPlane(t)
	report, err := rehearse.Run(t.Context(), rehearse.Options{
		Old: parse(t, before, "1.0.0"), New: parse(t, after, "1.1.0"), Sandbox: sandbox.Options{Nodes: 3},
		Progress: func(line string) {
			t.Log(line)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var table mistakes.Table
	for i, m := range all {
		found := findingsOf(report, i)
		for _, line := range found {
			t.Logf("%s %s: %s", m.Group, m.Name, line)
		}
		table.Add(m, m.Outcome(found))
	}
	const golden = "testdata/mistakes.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(table.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("other mistakes are found (-want +got):\n%s", diff)
	}
}

// nameOf returns the name of a branch of the shop.
func nameOf(i int) string { return fmt.Sprintf("shop%03d", i) }

// branch returns some files of a release, and those that all need. Its objects have other names, so that it does not
// meet other branches.
func branch(release fstest.MapFS, files []string, i int) fstest.MapFS {
	named := fstest.MapFS{}
	for name, file := range release {
		if !strings.HasPrefix(name, "0000_10") && !strings.HasPrefix(name, "0000_20_shop_00") &&
			!slices.Contains(files, name) {
			continue
		}
		named[strings.ReplaceAll(name, "shop", nameOf(i))] = &fstest.MapFile{
			Data: []byte(strings.ReplaceAll(string(file.Data), "shop", nameOf(i))),
		}
	}
	return named
}

// findingsOf returns the errors and warnings about a branch, with the names of the shop.
func findingsOf(report *rehearse.Report, i int) (found []string) {
	severities := map[string]lint.Severity{}
	for _, rule := range lint.RehearsalRules() {
		severities[rule.ID] = rule.Severity
	}
	for _, seen := range report.Observations {
		if strings.Contains(seen.Path, nameOf(i)) && severities[seen.Rule].AtLeast(lint.Warning) {
			line := fmt.Sprintf("%s: %s: %s: %s", seen.Path, seen.Rule, seen.Object, seen.Message)
			found = append(found, strings.ReplaceAll(line, nameOf(i), "shop"))
		}
	}
	return found
}

// parse reads a release, of which some files may be wrong.
func parse(t testing.TB, files fstest.MapFS, version string) *payload.Payload {
	t.Helper()
	read, _, err := payload.Parse(t.Context(), files, payload.Options{Name: "shop", Version: version, KeepText: true})
	if err != nil {
		t.Fatal(err)
	}
	return read
}
