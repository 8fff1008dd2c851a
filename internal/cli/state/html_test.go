package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/session/state"
)

// TestInspectionAsPage makes the page of files that are too big for it, and of small ones after them.
func TestInspectionAsPage(t *testing.T) {
	var lines strings.Builder
	for i := range maxShownLines + 2 {
		fmt.Fprintf(&lines, "line %d\n", i)
	}
	wide := strings.Repeat(strings.Repeat("x", 1_990)+"\n", maxShownLines)
	report := &state.InspectReport{Folder: t.TempDir()}
	for i, text := range []string{wide, wide, wide, wide, wide, strings.Repeat("y", 20_000_000), lines.String(),
		"a: b\n"} {
		name := fmt.Sprintf("%d.yaml", i)
		if i == 6 {
			name = "pod.log"
		}
		if err := os.WriteFile(filepath.Join(report.Folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		report.Files = append(report.Files, state.InspectedFile{Path: name, Bytes: len(text)})
	}
	page, err := inspectionPage(report)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := page.WriteFile(&out); err != nil {
		t.Fatal(err)
	}
	for want, count := range map[string]int{
		"has no room for the contents of 1 file.": 1, "(not on this page: too big)": 1, `href="#file-`: 7,
		`<div id="file-8">`: 1, "a: b\n": 1, "2 earlier lines left out": 1, "line 1\n": 0, "line 2\n": 1,
	} {
		if got := strings.Count(out.String(), want); got != count {
			t.Errorf("%q is %d times on the page, want %d", want, got, count)
		}
	}
	if out.Len() > maxShownBytes+100_000 {
		t.Errorf("the page has %d bytes", out.Len())
	}
}
