package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func TestPayloadsOfASizeDifferOnlyInTheirName(t *testing.T) {
	first, second := payload{name: "tool-a", objects: 300}.manifests(),
		payload{name: "tool-b", objects: 300}.manifests()
	for i := range first {
		first[i].text = strings.ReplaceAll(first[i].text, "tool-a", "tool-b")
	}
	if !reflect.DeepEqual(first, second) {
		t.Error("the payloads differ")
	}
	if again := (payload{name: "tool-b", objects: 300}).manifests(); !reflect.DeepEqual(second, again) {
		t.Error("the same payload differs the second time")
	}
}

func TestPayloadHasAsManyObjectsAsItsSize(t *testing.T) {
	for _, size := range []int{10, 100, 1000, 5000} {
		objects, kinds := map[string]bool{}, map[string]bool{}
		for _, m := range (payload{name: "tool", objects: size}).manifests() {
			object := parseManifest(t, m)
			kinds[object.Kind] = true
			objects[object.Kind+" "+object.Namespace+"/"+object.Name] = true
		}
		if len(objects) != size || size >= 100 && len(kinds) != 10 {
			t.Errorf("%d objects of %d kinds, not %d of 10", len(objects), len(kinds), size)
		}
	}
}

func TestOneObjectOfAHundredChanges(t *testing.T) {
	before, after := payload{"tool", 5000, 0}.manifests(), payload{"tool", 5000, 1}.manifests()
	changed, kinds := 0, map[string]bool{}
	for i := range before {
		if before[i].text != after[i].text {
			changed++
			kinds[parseManifest(t, after[i]).Kind] = true
		}
	}
	if changed != 50 || len(kinds) != 8 {
		t.Errorf("%d objects of %d kinds have changed, not 50 of 8", changed, len(kinds))
	}
}

func parseManifest(t *testing.T, m manifest) metav1.PartialObjectMetadata {
	t.Helper()
	var object metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(m.text), &object); err != nil {
		t.Fatalf("%s: %v", m.file, err)
	}
	return object
}

func TestChartHasTheSameManifestsWithDefinitionsInTheirOwnFolder(t *testing.T) {
	written, err := payload{name: "tool", objects: 10}.write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for file, copied := range map[string]string{
		"00-namespace-000.yaml": "templates", "10-definition.yaml": "crds", "20-object-00000.yaml": "templates",
	} {
		want, err := os.ReadFile(filepath.Join(written.folder, file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(written.chart, copied, file)); string(got) != string(want) {
			t.Errorf("%s/%s: %q, %v", copied, file, got, err)
		}
	}
	want := []string{filepath.Join(written.folder, "10-definition.yaml"),
		filepath.Join(written.folder, "00-namespace-000.yaml")}
	if !reflect.DeepEqual(written.prerequisites, want) {
		t.Errorf("prerequisites: %v", written.prerequisites)
	}
}
