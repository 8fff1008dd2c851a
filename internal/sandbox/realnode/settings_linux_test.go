package realnode

import (
	"os"
	"strings"
	"testing"
)

// TestDocsNameTheSettings finds each setting of the machine that nodes change in the documentation.
func TestDocsNameTheSettings(t *testing.T) {
	page, err := os.ReadFile("../../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range settings {
		if name := strings.ReplaceAll(setting, "/", "."); !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/sandbox.md does not name %s", name)
		}
	}
}
