package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/bench/internal/manifests"
)

func TestReadTakesAllDocumentsInTheOrderOfTheirFiles(t *testing.T) {
	folder := t.TempDir()
	for file, text := range map[string]string{
		"b.yml":    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: room}}",
		"a.yaml":   "---\n# nothing yet\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  text: |\n    ---\n---\nkind: Secret\nmetadata: {name: s}\n",
		"notes.md": "no manifest",
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, err := manifests.Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range read {
		got = append(got, filepath.Base(m.File)+" "+m.Kind+" "+m.Metadata.Namespace+"/"+m.Metadata.Name)
	}
	if want := "a.yaml ConfigMap /c, a.yaml Secret /s, b.yml Deployment room/d"; strings.Join(got, ", ") != want {
		t.Errorf("%v", got)
	}
	if want := `{"apiVersion":"v1","data":{"text":"---\n"},"kind":"ConfigMap","metadata":{"name":"c"}}`; string(read[0].JSON) != want {
		t.Errorf("%s", read[0].JSON)
	}
}

func TestWhatIsNoYAMLIsSaidWithItsFile(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "bad.yaml"), []byte("a: [1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := manifests.Read(folder); err == nil || !strings.Contains(err.Error(), "bad.yaml: ") {
		t.Errorf("%v", err)
	}
}
