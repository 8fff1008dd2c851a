package review

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestTombstonesAreAllWrittenOrNone lets a file come into being after the names were chosen.
func TestTombstonesAreAllWrittenOrNone(t *testing.T) {
	folder := t.TempDir()
	first, second := filepath.Join(folder, "a.yaml"), filepath.Join(folder, "b.yaml")
	if err := os.WriteFile(second, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTombstoneFiles(map[string]*tombstoneFile{first: {count: 1}, second: {count: 1}},
		io.Discard); err == nil {
		t.Error("an existing file was overwritten")
	}
	if _, err := os.Stat(first); err == nil {
		t.Error("a.yaml was left behind")
	}
	if text, err := os.ReadFile(second); err != nil || string(text) != "kept" {
		t.Errorf("b.yaml is %q, %v", text, err)
	}
}
