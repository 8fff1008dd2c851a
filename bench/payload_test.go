package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/runlevel/runlevel/bench/internal/manifests"
)

func TestTwinsAreAlikeButForTheirNames(t *testing.T) {
	one, other := generated(300).documents("twin-a", 0), generated(300).documents("twin-b", 0)
	for i := range one {
		one[i].text = strings.ReplaceAll(one[i].text, "twin-a", "twin-b")
	}
	if !reflect.DeepEqual(one, other) {
		t.Error("twins differ")
	}
	if again := generated(300).documents("twin-b", 0); !reflect.DeepEqual(other, again) {
		t.Error("the same payload is another the second time")
	}
}

func TestAPayloadHasTheObjectsItSays(t *testing.T) {
	for _, size := range []int{10, 100, 1000, 5000} {
		objects, kinds := map[string]bool{}, map[string]bool{}
		for _, d := range generated(size).documents("it", 0) {
			found, err := manifests.Parse([]byte(d.text))
			if err != nil || len(found) != 1 {
				t.Fatalf("%s: %d manifests, %v", d.file, len(found), err)
			}
			m := found[0]
			kinds[m.Kind] = true
			objects[m.Kind+" "+m.Metadata.Namespace+"/"+m.Metadata.Name] = true
		}
		if len(objects) != size || size >= 100 && len(kinds) != 10 {
			t.Errorf("%d objects of %d kinds, not %d of 10", len(objects), len(kinds), size)
		}
	}
}

func TestOneOfAHundredChanges(t *testing.T) {
	before, after := generated(5000).documents("it", 0), generated(5000).documents("it", 1)
	changed, kinds := 0, map[string]bool{}
	for i := range before {
		if before[i].text != after[i].text {
			changed++
			found, _ := manifests.Parse([]byte(after[i].text))
			kinds[found[0].Kind] = true
		}
	}
	if changed != 50 || len(kinds) != 8 {
		t.Errorf("%d objects of %d kinds have changed, not 50 of 8", changed, len(kinds))
	}
}

func TestAChartHasDefinitionsApartAndNothingToFillIn(t *testing.T) {
	below := t.TempDir()
	p, err := write([]document{
		{"10-widgets.yaml", "kind: CustomResourceDefinition\n", definitions},
		{"20-rule.yaml", "summary: '{{ $value }} of {{ $labels }}'\n", others},
	}, below)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"chart/crds/10-widgets.yaml":   "kind: CustomResourceDefinition\n",
		"chart/templates/20-rule.yaml": "summary: '{{ \"{{\" }} $value }} of {{ \"{{\" }} $labels }}'\n",
		"manifests/20-rule.yaml":       "summary: '{{ $value }} of {{ $labels }}'\n",
	} {
		if got, err := os.ReadFile(filepath.Join(below, file)); string(got) != want {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
	if want := []string{filepath.Join(p.folder, "10-widgets.yaml")}; !reflect.DeepEqual(p.before, want) {
		t.Errorf("to be applied before: %v", p.before)
	}
}
