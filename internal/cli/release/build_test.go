package release_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/runlevel/runlevel/internal/operator/setup"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/source"
)

// componentImage returns the image of a component with manifests.
func componentImage(t *testing.T, labels, manifests map[string]string) v1.Image {
	t.Helper()
	files := fstest.MapFS{"bin/run": {Data: []byte("run")}}
	for name, text := range manifests {
		files["manifests/"+name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return labelledImage(t, files, labels)
}

// withoutTimes removes from image-references its time, and the empty annotations that OpenShift's client writes.
func withoutTimes(stream any) any {
	delete(stream.(map[string]any)["metadata"].(map[string]any), "creationTimestamp")
	delete(stream.(map[string]any)["metadata"].(map[string]any), "annotations")
	for _, tag := range stream.(map[string]any)["spec"].(map[string]any)["tags"].([]any) {
		annotations, _ := tag.(map[string]any)["annotations"].(map[string]any)
		maps.DeleteFunc(annotations, func(_ string, value any) bool { return value == "" })
		if len(annotations) == 0 {
			delete(tag.(map[string]any), "annotations")
		}
	}
	return stream
}

// TestOpenShiftsClientBuildsTheSame builds a release of the same images by OpenShift's client and by runlevel. It reads
// both alike.
func TestOpenShiftsClientBuildsTheSame(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	web := push(t, registry, "shop/web", componentImage(t, map[string]string{
		"io.openshift.release.operator": "true", "io.openshift.build.commit.id": "c0ffee",
		"io.openshift.build.commit.ref": "main", "io.openshift.build.source-location": "https://git.example/web",
		"io.openshift.build.versions": "kubernetes=1.34.1",
	}, map[string]string{
		"image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[` +
			`{"name":"web","from":{"kind":"DockerImage","name":"placeholder.example/web"}},` +
			`{"name":"db","from":{"kind":"DockerImage","name":"placeholder.example/db"}}]}}`,
		"0000_20_web_00_namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\ndata:\n" +
			"  web: placeholder.example/web:latest\n  db: \"placeholder.example/db\"\n  version: 0.0.1-snapshot\n" +
			"  kubernetes: 0.0.1-snapshot-kubernetes\n  script: |\n    run 'placeholder.example/db:2' 0.0.1-snapshot\n",
	}))
	db := push(t, registry, "shop/db", componentImage(t, nil, nil))
	const channels = "io.openshift.upgrades.graph.release.channels"
	folder := t.TempDir()
	stream := filepath.Join(folder, "stream.json")
	texts := map[string]string{
		stream: fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[`+
			`{"name":"web","from":{"kind":"DockerImage","name":%q}},{"name":"db","from":{"kind":"DockerImage","name":%q}}]}}`,
			web, db),
		filepath.Join(folder, "release.yaml"): "name: shop\nversion: 1.4.0\nprevious: [1.3.3, 1.3.2]\n" +
			"channels: [stable-1.4]\ncomponents: [{name: web, source: \"" + web + "\"}]\nimages: {db: \"" + db +
			"\"}\n",
	}
	for file, text := range texts {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	theirs, ours := registry.Host+"/oc/release:1.4.0", registry.Host+"/own/release:1.4.0"
	if code, _, problems := run(t, "build", folder, "--base", db, "--to", ours, "--insecure"); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	oc(t, "new", "-f", stream, "--reference-mode=source", "--name=1.4.0", "--previous=1.3.3,1.3.2",
		`--metadata={"`+channels+`":"stable-1.4"}`, "--to-image-base="+db, "--to-image="+theirs, "--insecure")
	var described []map[string]any
	for i, ref := range []string{theirs, ours} {
		var one map[string]any
		if err := json.Unmarshal(oc(t, "info", ref, "--insecure", "-o", "json"), &one); err != nil {
			t.Fatal(err)
		}
		described = append(described, map[string]any{
			"references": withoutTimes(one["references"]), "metadata": one["metadata"],
			"displayVersions": one["displayVersions"],
			"config":          one["config"].(map[string]any)["config"],
		})
		oc(t, "extract", ref, "--insecure", "--to", filepath.Join(folder, fmt.Sprint(i)))
	}
	if diff := cmp.Diff(described[0], described[1]); diff != "" {
		t.Errorf("info, -oc +runlevel:\n%s", diff)
	}
	files := []map[string][]any{documentsIn(t, filepath.Join(folder, "0")), documentsIn(t, filepath.Join(folder, "1"))}
	for _, each := range files {
		each["image-references"][0] = withoutTimes(each["image-references"][0])
	}
	if diff := cmp.Diff(files[0], files[1]); diff != "" {
		t.Errorf("files, -oc +runlevel:\n%s", diff)
	}
	if text := fmt.Sprint(files[1]["0000_50_web_settings.yaml"]); !strings.Contains(text, "kubernetes:1.34.1") {
		t.Errorf("the version of Kubernetes is missing in %s", text)
	}
	compareWithOC(t, ours)
}

// TestTheOperatorRunsFromTheRelease if the release was put on the image of the operator.
func TestTheOperatorRunsFromTheRelease(t *testing.T) {
	registry := imageregistry.Start()
	t.Cleanup(registry.Close)
	operator := push(t, registry, "runlevel", componentImage(t, nil, nil))
	folder := t.TempDir()
	for file, text := range map[string]string{
		"release.yaml": "name: shop\nversion: 1.4.0\ncomponents: [{name: web, source: .}]\n",
		"a.json":       `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}`,
	} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ref := registry.Host + "/shop/release"
	if code, _, problems := run(t, "build", folder, "--base", operator, "--to", ref, "--insecure"); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems)
	}
	program := setup.Program{Release: ref + ":1.4.0"}
	if err := program.Read(t.Context(), source.Options{Insecure: true}); err != nil {
		t.Fatal(err)
	}
	if program.Image != program.Release || !strings.HasPrefix(program.Image, ref+"@sha256:") {
		t.Errorf("the operator runs %s, and the release is %s", program.Image, program.Release)
	}
}
