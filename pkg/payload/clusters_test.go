package payload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCommonClusterOfManifests compares the answers with that of all clusters there may be, for
// manifests with all sorts of annotations.
func TestCommonClusterOfManifests(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	everywhere := allClusters()
	together, apart := 0, 0
	for range 400 {
		a, b := annotatedAtRandom(random), annotatedAtRandom(random)
		want, wantWithout := false, false
		for _, cluster := range everywhere {
			want = want || includes(cluster, a) && includes(cluster, b)
			wantWithout = wantWithout || includes(cluster, a) && !includes(cluster, b)
		}
		if cluster, got := (Filter{}).ClusterWithout(a, []*Manifest{b}); got != wantWithout ||
			got && (!includes(cluster, a) || includes(cluster, b)) {
			t.Fatalf("ClusterWithout: got %q, %t, want %t as for every cluster, for %v and %v", cluster, got,
				wantWithout, a.annotations(), b.annotations())
		} else if got {
			apart++
		}
		cluster, got := (Filter{}).CommonCluster(a, b)
		if got && !(includes(cluster, a) && includes(cluster, b)) {
			t.Fatalf("%q does not include both %v and %v", cluster, a.annotations(), b.annotations())
		}
		if got != want {
			t.Fatalf("CommonCluster: got %t, want %t as for every cluster, for %v and %v", got, want, a.annotations(),
				b.annotations())
		}
		if got {
			together++
		}
	}
	if together < 40 || together > 360 || apart < 40 || apart > 360 {
		t.Errorf("%d of 400 pairs are together, %d apart: the test compares too little", together, apart)
	}
}

// includes reports whether a filter includes a manifest.
func includes(f Filter, m *Manifest) bool {
	exclusion, err := f.exclusion(m)
	return err == nil && exclusion == nil
}

// allClusters are those that the annotations of annotatedAtRandom distinguish.
func allClusters() []Filter {
	var all []Filter
	for _, profile := range []string{"a", "b"} {
		for _, set := range []string{"Default", "TechPreviewNoUpgrade", "CustomNoUpgrade", "DevPreviewNoUpgrade"} {
			for _, gates := range [][]string{{}, {"X"}, {"Y"}, {"X", "Y"}} {
				for _, major := range []uint64{3, 4, 5, 6} {
					for _, exclude := range []string{"", "e"} {
						all = append(all, Filter{
							Exclude:      exclude,
							Profile:      profile,
							FeatureSet:   set,
							FeatureGates: gates,
							MajorVersion: major,
						})
					}
				}
			}
		}
	}
	return all
}

func annotatedAtRandom(random *rand.Rand) *Manifest {
	annotations := map[string]any{}
	choose := func(key string, values ...string) {
		if value := values[random.IntN(len(values))]; value != "" {
			annotations[key] = value
		}
	}
	choose(IncludePrefix+"a", "true", "true", "false")
	choose(IncludePrefix+"b", "true", "")
	choose(excludePrefix+"e", "", "", "true")
	choose(MajorVersionAnnotation, "", "4", "-4", "4,5")
	if random.IntN(2) == 0 {
		choose(FeatureSetAnnotation, "", "Default", "TechPreviewNoUpgrade", "Default,TechPreviewNoUpgrade")
	} else {
		choose(FeatureGateAnnotation, "", "X", "-X", "X,-Y", "Y")
	}
	return manifestOf(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "x", "annotations": annotations},
	}})
}

// TestFilesAreListed with their empty documents, and the files that are not read.
func TestFilesAreListed(t *testing.T) {
	read, problems, err := Parse(t.Context(), memory{
		"a.yaml": []byte("# a comment on the file\n---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: " +
			"a}\n---\n---\n# nothing\n---\n"),
		"b.yaml":     []byte("# nothing at all\n"),
		"c.YAML":     []byte("x"),
		"d.yaml~":    []byte("x"),
		"e/f.yaml":   []byte("x"),
		"z.yml":      []byte("---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: z}\n---\n"),
		MetadataFile: []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`),
	}.open(), Options{KeepText: true})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	var got strings.Builder
	for _, file := range read.Files {
		fmt.Fprintf(&got, "%s %d %v\n", file.Path, file.Documents, file.Empty)
	}
	fmt.Fprintln(&got, read.Ignored)
	if want := "a.yaml 1 [7 8]\nb.yaml 0 []\nz.yml 1 []\n[c.YAML d.yaml~ e]\n"; got.String() != want {
		t.Errorf("got\n%s, want\n%s", got.String(), want)
	}
	if line, column := read.Manifests[0].Places().At("metadata", "name"); line != 5 || column != 12 {
		t.Errorf("metadata.name is in line %d, column %d, want 5 and 12", line, column)
	}
}
