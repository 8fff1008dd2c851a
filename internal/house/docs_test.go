package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest  = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testHeader = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestTheTestsThatDocsNameExist checks the pages that prove a statement by the name of a test.
func TestTheTestsThatDocsNameExist(t *testing.T) {
	exist := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testHeader.FindAllSubmatch(text, -1) {
			exist[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages:", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range namedTest.FindAllSubmatch(text, -1) {
			if name := string(found[1]); !exist[name] {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), name)
			}
		}
	}
}
