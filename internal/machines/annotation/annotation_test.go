package annotation_test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// TestNoAnnotationIsDeclaredElsewhere reads the code of the repository: it names the annotations by the constants of
// this package. Examples are programs of others, and have literals.
func TestNoAnnotationIsDeclaredElsewhere(t *testing.T) {
	root := os.DirFS("../../..")
	for _, folder := range []string{"cmd", "internal", "pkg"} {
		err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			isCode := path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
			if err != nil || entry.IsDir() || !isCode || name == "internal/machines/annotation/annotation.go" {
				return err
			}
			text, err := fs.ReadFile(root, name)
			if strings.Contains(string(text), `machine.runlevel.dev/`) {
				t.Errorf("%s has an annotation of machine.runlevel.dev: declare it in package annotation", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
