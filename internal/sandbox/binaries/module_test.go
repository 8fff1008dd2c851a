package binaries

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "pack the folder sandbox again")

// The packed module is the folder sandbox, file by file; if it were not, users
// of an installed Runlevel would run another control plane than developers.
func TestPackedModuleIsTheSandboxFolder(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "sandbox")
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	archive := &txtar.Archive{Comment: []byte("The folder sandbox, packed by \"make generate\".\n")}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		archive.Files = append(archive.Files, txtar.File{Name: entry.Name(), Data: content})
	}
	want := txtar.Format(archive)
	if *update {
		if err := os.WriteFile("module.txtar", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), string(packed)); diff != "" {
		t.Errorf("module.txtar is not the folder sandbox; run \"make generate\" (-want +got):\n%s", diff)
	}
}

func TestVersion(t *testing.T) {
	if Version() != "v1.36.3" {
		t.Errorf("Version() = %s; a new version belongs into CHANGELOG.md and README.md too", Version())
	}
}
