package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// TestTranscriptsOfPages compares the transcripts in pages with the scripts that produce them. Above each
// block, the page names its source: <!-- SCRIPT: FILE -->
func TestTranscriptsOfPages(t *testing.T) {
	for _, name := range []string{"ownership.md", "watch.md"} {
		t.Run(name, func(t *testing.T) { compareTranscripts(t, name) })
	}
}

func compareTranscripts(t *testing.T, name string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- (\\S+): (\\S+) -->\n```\\w*\n(.*?)```\n").FindAllStringSubmatch(string(page),
		-1)
	if fences := strings.Count(string(page), "\n```"); fences != 2*len(blocks) || fences == 0 {
		t.Errorf("docs/%s has %d fences, and %d blocks with a source", name, fences, len(blocks))
	}
	for _, block := range blocks {
		script, err := txtar.ParseFile(filepath.Join("testdata", block[1]))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range script.Files {
			found = found || file.Name == block[2] && string(file.Data) == block[3]
		}
		if !found {
			t.Errorf("docs/%s: %s of %s is outdated", name, block[2], block[1])
		}
	}
}

// show prints fields of an object as YAML: show KIND KEY FIELD...
func show(ts *testscript.TestScript, _ bool, args []string) {
	place, name := guestOf(ts).object(context.Background(), ts, args[0], args[1])
	live, err := place.Get(context.Background(), name, metav1.GetOptions{})
	ts.Check(err)
	shown := map[string]any{}
	for _, field := range args[2:] {
		path := strings.Split(field, ".")
		if value, found, _ := unstructured.NestedFieldCopy(live.Object, path...); found {
			ts.Check(unstructured.SetNestedField(shown, value, path...))
		}
	}
	text, err := yaml.Marshal(shown)
	ts.Check(err)
	fmt.Fprint(ts.Stdout(), string(text))
}

// scale scales an object as an autoscaler does: scale KIND KEY REPLICAS
func scale(ts *testscript.TestScript, _ bool, args []string) {
	place, name := guestOf(ts).object(context.Background(), ts, args[0], args[1])
	patch := fmt.Sprintf(`{"spec":{"replicas":%s}}`, args[2])
	_, err := place.Patch(context.Background(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "scale")
	ts.Check(err)
}

// applyAs applies an object as another tool does by server-side apply: apply-as FILE MANAGER
func applyAs(ts *testscript.TestScript, _ bool, args []string) {
	object := &unstructured.Unstructured{}
	ts.Check(yaml.Unmarshal([]byte(ts.ReadFile(args[0])), &object.Object))
	resource, err := guestOf(ts).FindKind(context.Background(), object.GroupVersionKind().GroupKind())
	ts.Check(err)
	_, err = guestOf(ts).In(resource, object.GetNamespace()).Apply(context.Background(), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: args[1], Force: true})
	ts.Check(err)
}
