package mistakes_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/review/mistakes"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var (
	controlPlane = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})
	update       = flag.Bool("update", false, "write the answers of the API server")
)

func TestMain(m *testing.M) {
	if os.Args[0] == programPath {
		os.Exit(runInContainer(os.Args[1:]))
	}
	os.Exit(controlPlane.Run(m))
}

// TestServerAnswers asks an API server about each mistake: as a new release, and as an update. Its
// answers are server.txt.
func TestServerAnswers(t *testing.T) {
	all, err := mistakes.All()
	if err != nil {
		t.Fatal(err)
	}
	server := sandboxtest.Connect(t, controlPlane.Sandbox(t).Config)
	answers := map[string]string{}
	before := func(object *unstructured.Unstructured) bool { // what other objects are created in
		return object.GetKind() == "Namespace" || object.GetKind() == "CustomResourceDefinition"
	}
	shop, err := mistakes.Shop()
	if err != nil {
		t.Fatal(err)
	}
	applyAll(t, server, shop, before)
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error { // the definition has to be established
		server.Refresh()
		_, err := server.FindKind(ctx, schema.GroupKind{Group: "shop.example", Kind: "Widget"})
		return err
	})
	for _, m := range all {
		if m.Group == mistakes.Create || m.Group == mistakes.Within {
			answers[m.Name] = ask(t, server, m)
		}
	}
	applyAll(t, server, shop, func(object *unstructured.Unstructured) bool { return !before(object) })
	for _, m := range all {
		if m.Group != mistakes.Create && m.Group != mistakes.Within {
			answers[m.Name] = ask(t, server, m)
		}
	}

	var text strings.Builder
	for _, m := range all {
		isRefused := m.Group == mistakes.Create || m.Group == mistakes.Within || m.Group == mistakes.Update
		if isRefused != (answers[m.Name] != "") {
			t.Errorf("%s is of the group %s, and the API server answers %q", m.Name, m.Group, answers[m.Name])
		}
		fmt.Fprintf(&text, "%s: %s\n", m.Name, line(answers[m.Name]))
	}
	if *update {
		if err := os.WriteFile("server.txt", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile("server.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("the answers of the API server differ (-server.txt +now):\n%s", diff)
	}
}

// aValue is a value in an answer, which differs from run to run where it has a UID.
var aValue = regexp.MustCompile(`\{.*\}`)

// line returns an answer in one line.
func line(answer string) string {
	answer = strings.Join(strings.Fields(answer), " ")
	return cmp.Or(aValue.ReplaceAllString(answer, "{…}"), "accepted")
}

// applyAll applies the objects of a release that are wanted.
func applyAll(t *testing.T, server *cluster.Cluster, release fstest.MapFS,
	isWanted func(*unstructured.Unstructured) bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(release)) {
		for _, object := range objects(t, release, name) {
			if isWanted(object) {
				sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
					return apply(ctx, server, object, cluster.Force)
				})
			}
		}
	}
}

// ask returns the reason why the API server refuses a mistake, or "" if it does not.
func ask(t *testing.T, server *cluster.Cluster, m mistakes.Mistake) string {
	t.Helper()
	release, changed, err := m.Release()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(changed)
	for _, name := range slices.Compact(changed) {
		for _, object := range objects(t, release, name) {
			if err := apply(t.Context(), server, object, cluster.Force|cluster.DryRun); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

func apply(ctx context.Context, server *cluster.Cluster, object *unstructured.Unstructured,
	mode cluster.ApplyMode) error {
	resource, err := server.Find(ctx, object.GroupVersionKind())
	if err == nil {
		_, err = server.Apply(ctx, resource, object, mode)
	}
	return err
}

// objects returns the objects of a file.
func objects(t *testing.T, release fstest.MapFS, name string) (found []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(string(release[name].Data), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found = append(found, object)
	}
	return found
}

// TestServerAcceptsValidObjects asks the API server about objects that look odd, of which package validation refuses
// none.
func TestServerAcceptsValidObjects(t *testing.T) {
	server := sandboxtest.Connect(t, controlPlane.Sandbox(t).Config)
	text, err := os.ReadFile("../../objects/validation/testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects(t, fstest.MapFS{"valid.yaml": {Data: text}}, "valid.yaml") {
		if err := apply(t.Context(), server, object, cluster.Force|cluster.DryRun); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// TestServerAnswersForExamples asks the API server about the examples of lint's rules for its refusals: examples that a
// rule finds, and those that it does not.
func TestServerAnswersForExamples(t *testing.T) {
	server := sandboxtest.Connect(t, controlPlane.Sandbox(t).Config)
	pages, err := filepath.Glob("../lint/rules/invalid-*.txtar")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	for _, page := range pages {
		archive, err := txtar.ParseFile(page)
		if err != nil {
			t.Fatal(err)
		}
		isFound := map[string]bool{}
		for _, file := range archive.Files {
			name, isWant := strings.CutSuffix(file.Name, ".want")
			isFound[name] = isWant
			if file.Name == "want" {
				isFound["bad"] = true
			}
		}
		for _, file := range archive.Files {
			name, path, isManifest := strings.Cut(file.Name, "/")
			if !isManifest {
				continue
			}
			var refused error
			for _, object := range objects(t, fstest.MapFS{path: {Data: file.Data}}, path) {
				refused = errors.Join(refused, apply(t.Context(), server, object, cluster.Force|cluster.DryRun))
			}
			if isFound[name] != (refused != nil) {
				t.Errorf("%s: lint finds %s: %v, and the API server answers: %v", filepath.Base(page), name,
					isFound[name],
					refused)
			}
		}
	}
}
