package build_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/runlevel/runlevel/internal/release/build"
)

const shop = `name: shop
version: 1.4.0
previous: [1.3.3, 1.3.2]
channels: [stable-1.4, fast-1.4]
components:
- name: web
  source: ./web/manifests
- name: api
  source: ./api
images:
  web: REGISTRY/shop/web:1.4.0
  api: REGISTRY/shop/api:1.4.0
`

// shopFolder writes a release with two components, whose images are pushed.
func shopFolder(t testing.TB, host string) (folder, web, api string) {
	t.Helper()
	web = push(t, host+"/shop/web:1.4.0", imageOf(t, map[string]string{
		"io.openshift.build.commit.id": "c0ffee", "io.openshift.build.versions": "kubernetes=1.34.1",
	}, map[string]string{"web": "web"}))
	api = push(t, host+"/shop/api:1.4.0", imageOf(t, nil, map[string]string{"api": "api"}))
	folder = write(t, map[string]string{
		"release.yaml": strings.ReplaceAll(shop, "REGISTRY", host),
		"web/manifests/0000_30_web_00_namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"web/manifests/deployment.yaml":               deployment("web", host+"/shop/web:1.4.0"),
		"web/manifests/README.md":                     "not a manifest",
		"api/deployment.yaml": deployment("api", "placeholder.example/api") + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: versions, namespace: shop}
data:
  version: 0.0.1-snapshot # of the release
  script: |
    run placeholder.example/api:latest
    run "` + host + `/shop/web:1.4.0" # not a comment
`,
		"api/image-references": `kind: ImageStream
apiVersion: image.openshift.io/v1
spec: {tags: [{name: api, from: {kind: DockerImage, name: placeholder.example/api}}]}
`,
	})
	return folder, host + "/shop/web@" + web, host + "/shop/api@" + api
}

// filesOf returns the files of a release by their names.
func filesOf(t testing.TB, release *build.Release) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(release.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			var text []byte
			text, err = fs.ReadFile(release.Files, name)
			files[strings.TrimPrefix(name, "release-manifests/")] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestBuildPutsImagesAndVersionsIntoManifests(t *testing.T) {
	host := startRegistry(t)
	folder, web, api := shopFolder(t, host)
	release, err := buildIn(t, folder, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files := filesOf(t, release)
	if diff := cmp.Diff([]string{"0000_30_web_00_namespace.yaml", "0000_50_api_deployment.yaml",
		"0000_50_web_deployment.yaml", "image-references", "release-metadata", "runlevel.yaml"},
		sortedKeys(files)); diff != "" {
		t.Error(diff)
	}
	// comments and everything else stay as they are
	want := strings.Replace(deployment("web", host+"/shop/web:1.4.0"), "image: "+host+"/shop/web:1.4.0", "image: "+web,
		1)
	if diff := cmp.Diff(want, files["0000_50_web_deployment.yaml"]); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{
		"# The api, which runs placeholder.example/api\n", "image: " + api + " # the image",
		"version: 1.4.0 # of the release",
		"run " + api + "\n", "run \"" + web + "\" # not a comment",
	} {
		if !strings.Contains(files["0000_50_api_deployment.yaml"], text) {
			t.Errorf("%q is missing in\n%s", text, files["0000_50_api_deployment.yaml"])
		}
	}
	if want := "name: shop\n"; files["runlevel.yaml"] != want {
		t.Errorf("got %q, want %q", files["runlevel.yaml"], want)
	}
	wantMetadata := `{
  "kind": "cincinnati-metadata-v0",
  "version": "1.4.0",
  "previous": [
    "1.3.2",
    "1.3.3"
  ],
  "metadata": {
    "io.openshift.upgrades.graph.release.channels": "stable-1.4,fast-1.4"
  }
}`
	if diff := cmp.Diff(wantMetadata, files["release-metadata"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{filepath.Join(folder, "web/manifests/README.md")}, release.Ignored); diff != "" {
		t.Error(diff)
	}
	if release.SourceOf("release-manifests/0000_50_api_deployment.yaml") != filepath.Join(folder,
		"api/deployment.yaml") {
		t.Error("the source of a manifest is not known")
	}
	for name, want := range map[string]string{"web": web, "api": api} {
		if got := release.Payload.Images[name]; got != want {
			t.Errorf("image %s is %s, want %s", name, got, want)
		}
	}
	if !strings.Contains(files["image-references"], `"io.openshift.build.commit.id": "c0ffee"`) {
		t.Errorf("the commit is missing in %s", files["image-references"])
	}
}

// TestBuildHasOneDigest builds the same files in other folders, with other times and modes.
func TestBuildHasOneDigest(t *testing.T) {
	host := startRegistry(t)
	first, _, _ := shopFolder(t, host)
	second, _, _ := shopFolder(t, host)
	if err := os.Chmod(filepath.Join(second, "api/deployment.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(second, "api/deployment.yaml"), newYear, newYear); err != nil {
		t.Fatal(err)
	}
	var digests []string
	for _, folder := range []string{first, second} {
		release, err := buildIn(t, folder, build.Options{})
		if err != nil {
			t.Fatal(err)
		}
		digest := release.Root.Digest.String()
		for _, document := range release.Documents {
			digest += " " + document.Digest.String()
		}
		digests = append(digests, digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("the digests differ: %s", digests)
	}
	// the newest input decides, where no time is set
	config, err := build.ReadConfig(first)
	if err != nil {
		t.Fatal(err)
	}
	later := newYear.AddDate(30, 0, 0)
	if err := os.Chtimes(filepath.Join(first, "api/deployment.yaml"), later, later); err != nil {
		t.Fatal(err)
	}
	release, err := build.Build(context.Background(), config, build.Options{Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(filesOf(t, release)["image-references"], `"creationTimestamp": "2056-01-01T00:00:00Z"`) {
		t.Error("the release does not have the time of its newest file")
	}
}

func TestBuildFromALock(t *testing.T) {
	host := startRegistry(t)
	folder, _, _ := shopFolder(t, host)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: imageOf(t, map[string]string{"io.openshift.release.operator": "true"},
			map[string]string{"manifests/db.yaml": deployment("db", host+"/shop/db:2.0.0")}),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}},
	})
	push(t, host+"/shop/db:2.0.0", index)
	config := filepath.Join(folder, "release.yaml")
	text := strings.ReplaceAll(strings.Replace(shop, "images:", "- name: db\n  source: REGISTRY/shop/db:2.0.0\nimages:",
		1),
		"REGISTRY", host)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	first, err := buildIn(t, folder, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lock")
	if err := first.Lock.Write(file); err != nil {
		t.Fatal(err)
	}
	lock, err := build.ReadLock(file)
	if err != nil {
		t.Fatal(err)
	}
	// the registry has another image by now
	push(t, host+"/shop/web:1.4.0", imageOf(t, nil, map[string]string{"web": "another"}))
	second, err := buildIn(t, folder, build.Options{Lock: lock})
	if err != nil {
		t.Fatal(err)
	}
	if first.Root.Digest != second.Root.Digest {
		t.Errorf("got %s from the lock, want %s", second.Root.Digest, first.Root.Digest)
	}
	text = strings.ReplaceAll(strings.Replace(text, "web:1.4.0", "web:1.4.1", 1), "db:2.0.0", "db:2.0.1")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = buildIn(t, folder, build.Options{Lock: lock})
	const again = ": build without --from-lock, and write the lock again by --lock"
	want := "release.yaml:13: image web: REGISTRY/shop/web:1.4.1: the lock has REGISTRY/shop/web:1.4.0" + again + "\n" +
		"release.yaml:10: component db: REGISTRY/shop/db:2.0.1: the lock has REGISTRY/shop/db:2.0.0" + again
	if diff := cmp.Diff(want, errorOf(t, err, folder, host)); diff != "" {
		t.Error(diff)
	}
}

// TestImagesByDigestAreListed so that a mirror of the release has them.
func TestImagesByDigestAreListed(t *testing.T) {
	sum := strings.Repeat("a", 64)
	folder := write(t, map[string]string{
		"release.yaml": "name: shop\nversion: 1.0.0\ncomponents: [{name: web, source: web}]\n",
		"web/a.yaml":   deployment("web", "other.example/x/web@sha256:"+sum),
		"web/b.yaml":   deployment("proxy", "\"other.example/y/web@sha256:"+strings.Repeat("b", 64)+`"`),
	})
	release, err := buildIn(t, folder, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"web":   "other.example/x/web@sha256:" + sum,
		"web-2": "other.example/y/web@sha256:" + strings.Repeat("b", 64),
	}
	if diff := cmp.Diff(want, release.Payload.Images); diff != "" {
		t.Error(diff)
	}
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }
