package crd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/internal/objects/crd"
)

// corpus are the objects of the real release that RUNLEVEL_TEST_RELEASE names:
// definitions, and all others.
func corpus(t testing.TB) (crds, others []entry) {
	t.Helper()
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if extension := filepath.Ext(name); err != nil ||
			!slices.Contains([]string{".yaml", ".yml", ".json"}, extension) {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, e := range parse(t, name, content) {
			if e.object["kind"] == "CustomResourceDefinition" {
				crds = append(crds, e)
			} else {
				others = append(others, e)
			}
		}
		return nil
	})
	if err != nil || len(crds) == 0 {
		t.Fatal("no definitions:", err)
	}
	return crds, others
}

// parse reads the objects of a file, as far as it is YAML: templates are none.
func parse(t testing.TB, name string, content []byte) []entry {
	t.Helper()
	var found []entry
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Logf("%s: %v", name, err)
			return found
		}
		if object["kind"] != nil {
			found = append(found, entry{name: filepath.Base(name), object: object})
		}
	}
}

// kindOf is group and kind of a custom resource, or of those of a definition.
func kindOf(object map[string]any) string {
	if group, _, _ := unstructured.NestedString(object, "spec", "group"); group != "" &&
		object["kind"] == "CustomResourceDefinition" {
		kind, _, _ := unstructured.NestedString(object, "spec", "names", "kind")
		return group + "/" + kind
	}
	group, _, _ := strings.Cut(fmt.Sprint(object["apiVersion"]), "/")
	return group + "/" + fmt.Sprint(object["kind"])
}

// refusedWithoutOpenShift are custom resources of the corpus that a plain API server
// refuses: OpenShift's has an admission plugin that fills in what they leave out.
var refusedWithoutOpenShift = []string{"SecurityContextConstraints/machine-api-termination-handler"}

// tooCostly matches definitions of the corpus that an API server refuses since Kubernetes 1.37, which estimates a
// higher cost for some of their rules. None is for the default feature set.
var tooCostly = regexp.MustCompile(`_(infrastructures|controllerconfigs)-.*NoUpgrade`)

func TestARealReleaseIsAccepted(t *testing.T) {
	crds, others := corpus(t)
	checked := 0
	for _, definition := range crds {
		problems := crd.CheckDefinition(t.Context(), definition.object)
		if refused := tooCostly.MatchString(definition.name); refused != (len(problems) > 0) {
			t.Errorf("%s: refused: %t, want %t: %v", definition.name, !refused, refused, problems)
		}
		d, err := crd.NewDefinition(definition.object)
		if err != nil {
			t.Errorf("%s: %v", definition.name, err)
			continue
		}
		for _, e := range others {
			if kindOf(e.object) != kindOf(definition.object) {
				continue
			}
			checked++
			u := unstructured.Unstructured{Object: e.object}
			problems := d.Check(t.Context(), e.object)
			if refused := slices.Contains(refusedWithoutOpenShift,
				u.GetKind()+"/"+u.GetName()); refused != (len(problems) > 0) {
				t.Errorf("%s: %s by %s: %v", e.name, u.GetName(), definition.name, problems)
			}
		}
	}
	t.Logf("%d definitions, %d times a custom resource", len(crds), checked)
}

func TestServerProblemsOfARealRelease(t *testing.T) {
	crds, others := corpus(t)
	client, err := dynamic.NewForConfig(cluster.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]entry{} // the first definition of each kind that has custom resources
	for _, definition := range crds {
		object, kind := &unstructured.Unstructured{Object: definition.object}, kindOf(definition.object)
		_, err := client.Resource(definitions).Create(t.Context(), object,
			metav1.CreateOptions{FieldValidation: strictly, DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsAlreadyExists(err) { // as another of its kind: it was validated before that was seen
			err = nil
		}
		agree(t, definition.name, err, crd.CheckDefinition(t.Context(), definition.object))
		if made[kind].object != nil ||
			!slices.ContainsFunc(others, func(e entry) bool { return kindOf(e.object) == kind }) {
			continue
		}
		if _, err := client.Resource(definitions).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		made[kind] = definition
	}
	for kind, definition := range made {
		established(t, definition.object)
		d, err := crd.NewDefinition(definition.object)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range others {
			if kindOf(e.object) == kind {
				object := unstructured.Unstructured{Object: e.object}
				object.SetNamespace("")
				agree(t, e.name+" of "+definition.name, send(t, client, definition.object, e),
					d.Check(t.Context(), e.object))
			}
		}
	}
}

func BenchmarkRealRelease(b *testing.B) {
	crds, others := corpus(b)
	check := func(every, first int) {
		for i := first; i < len(crds); i += every {
			crd.CheckDefinition(b.Context(), crds[i].object)
		}
	}
	prepare := func() map[string]*crd.Definition {
		made := map[string]*crd.Definition{}
		for _, definition := range crds {
			d, err := crd.NewDefinition(definition.object)
			if err != nil {
				b.Fatal(err)
			}
			made[kindOf(definition.object)] = d
		}
		return made
	}
	resources := func(made map[string]*crd.Definition) {
		for _, e := range others {
			if d := made[kindOf(e.object)]; d != nil {
				d.Check(b.Context(), e.object)
			}
		}
	}
	b.Run("definitions", func(b *testing.B) {
		for b.Loop() {
			check(1, 0)
		}
	})
	b.Run("definitions-by-two", func(b *testing.B) {
		for b.Loop() {
			var both sync.WaitGroup
			both.Go(func() { check(2, 0) })
			both.Go(func() { check(2, 1) })
			both.Wait()
		}
	})
	b.Run("prepare", func(b *testing.B) {
		for b.Loop() {
			prepare()
		}
	})
	b.Run("prepare-and-check-resources", func(b *testing.B) {
		for b.Loop() {
			resources(prepare())
		}
	})
	b.Run("resources", func(b *testing.B) {
		made := prepare()
		for b.Loop() {
			resources(made)
		}
	})
}
