package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const release = `
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: a, annotations: {include.release.openshift.io/ha: "true", note: "---"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gone, namespace: a, annotations: {release.openshift.io/delete: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: a, annotations: {include.release.openshift.io/single: "true"}}
---
apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: kept}
---
`

func TestACorpusHasWhatEverybodyTakes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "real")
	if err := os.MkdirAll(filepath.Join(folder, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "manifests", "all.yaml"), []byte(release), 0o600); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	c, err := readCorpus(folder, &told)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: v1
kind: ConfigMap
metadata:
  annotations:
    example.com/part-of: bench
    note: '---'
  name: kept
  namespace: a
`
	if got := c.documents("", 0); len(got) != 1 || got[0].text != want {
		t.Errorf("%+v", got)
	}
	if got := c.documents("", 7); !strings.Contains(got[0].text, `example.com/revision: "7"`) {
		t.Errorf("nothing has changed: %s", got[0].text)
	}
	for _, want := range []string{"are to be deleted", "another kind of cluster", "they need a backend"} {
		if strings.Count(told.String(), want) != 1 {
			t.Errorf("%q is not told once: %s", want, told.String())
		}
	}
}

func TestRefusalsAreReadOffTheFloorsLines(t *testing.T) {
	got := refusals("/x/manifests/00001.yaml: 404: namespaces \"a\" not found\n/x/manifests/00007.yaml: the server has no Foo in v1\nexit\n", "/x/manifests")
	want := map[string]string{"00001.yaml": `404: namespaces "a" not found`, "00007.yaml": "the server has no Foo in v1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}
