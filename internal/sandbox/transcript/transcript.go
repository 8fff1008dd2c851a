// Package transcript compares the output of tests with txtar files below testdata.
//
// A file has sections: the input of a test, and the expected output. "go test PACKAGE -update" rewrites the output.
// Start with Each:
//
//	transcript.Each(t, "testdata/*.txtar", func(t *testing.T, file *transcript.Transcript) {
//		file.Expect(t, "want", render(file.Section("input")))
//	})
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Update is the flag of all tests that compare output with files.
var Update = flag.Bool("update", false,
	"write the output of this test into the files of testdata, instead of comparing it")

// A Transcript is the archive of a file.
type Transcript struct {
	Name string // name of the file, without its folder and extension
	*txtar.Archive
	path string
}

// Each runs a test for each file of a pattern, as a subtest with the file's name.
func Each(t *testing.T, pattern string, test func(t *testing.T, file *Transcript)) {
	t.Helper()
	for _, file := range ReadAll(t, pattern) {
		t.Run(file.Name, func(t *testing.T) { test(t, file) })
	}
}

// ReadAll reads the files of a pattern. At least one file must exist.
func ReadAll(t testing.TB, pattern string) []*Transcript {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts in %s: %v", pattern, err)
	}
	files := make([]*Transcript, len(paths))
	for i, path := range paths {
		files[i] = Read(t, path)
	}
	return files
}

// Read reads a file.
func Read(t testing.TB, path string) *Transcript {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return &Transcript{Name: strings.TrimSuffix(filepath.Base(path), ".txtar"), Archive: archive, path: path}
}

// Section returns a section, or "" if the file has none of that name.
func (tr *Transcript) Section(name string) string {
	if section := tr.find(name); section != nil {
		return string(section.Data)
	}
	return ""
}

func (tr *Transcript) find(name string) *txtar.File {
	for i := range tr.Files {
		if tr.Files[i].Name == name {
			return &tr.Files[i]
		}
	}
	return nil
}

// Expect compares a section with the output of a test, or writes the section with -update.
func (tr *Transcript) Expect(t testing.TB, name, got string) {
	t.Helper()
	section := tr.find(name)
	if section == nil && *Update {
		tr.Files = append(tr.Files, txtar.File{Name: name})
		section = &tr.Files[len(tr.Files)-1]
	}
	switch {
	case section == nil:
		t.Errorf("%s has no section %q: -update adds it", tr.path, name)
	case string(section.Data) == got:
	case *Update:
		section.Data = []byte(got)
		if err := os.WriteFile(tr.path, txtar.Format(tr.Archive), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s, %s: -update writes it (-want +got):\n%s", tr.path, name, cmp.Diff(string(section.Data), got))
	}
}

// ExpectScripts plays each section whose name begins with "script", and compares the output with the section
// "transcript" of the same number.
func (tr *Transcript) ExpectScripts(t *testing.T, play func(script string) (output string)) {
	t.Helper()
	for _, section := range tr.Files {
		if name, isScript := strings.CutPrefix(section.Name, "script"); isScript {
			tr.Expect(t, "transcript"+name, play(string(section.Data)))
		}
	}
}

// Expect compares a whole file with the sections that a test generates, or writes the file with -update.
func Expect(t testing.TB, path string, sections []txtar.File) {
	t.Helper()
	got := txtar.Format(&txtar.Archive{Files: sections})
	if *Update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -update writes it (-want +got):\n%s", path, diff)
	}
}
