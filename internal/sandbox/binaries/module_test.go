package binaries

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "pack the folders below sandbox again")

// TestPackedModuleIsTheSandboxFolder compares each packed module with its folder: if they differed, users of an
// installed Runlevel would run other programs than developers.
func TestPackedModuleIsTheSandboxFolder(t *testing.T) {
	for name, packed := range map[string][]byte{"controlplane": packedControlPlane, "node": packedNode} {
		folder := filepath.Join("..", "..", "..", "sandbox", name)
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		archive := &txtar.Archive{Comment: []byte("The folder sandbox/" + name + ", packed by \"make generate\".\n")}
		for _, entry := range entries {
			content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			archive.Files = append(archive.Files, txtar.File{Name: entry.Name(), Data: content})
		}
		want := txtar.Format(archive)
		if *update {
			if err := os.WriteFile(name+".txtar", want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(string(want), string(packed)); diff != "" {
			t.Errorf("%s.txtar is not the folder sandbox/%s; run \"make generate\" (-want +got):\n%s", name, name, diff)
		}
	}
}

func TestModulesHaveTheSameVersion(t *testing.T) {
	all, err := modules()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.version != "v1.37.2" {
			t.Errorf("%s has version %s; change it in CHANGELOG.md and README.md, too", m.cache,
				m.version)
		}
	}
}
