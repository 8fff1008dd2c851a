package build_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/release/build"
)

// The digests of images that no registry needs to have.
var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
)

// buildOf builds one component from a lock with an image, web: the tag 1.4.0 of registry.example/shop/web.
func buildOf(t *testing.T, files map[string]string) (folder string, release *build.Release, err error) {
	t.Helper()
	texts := map[string]string{"release.yaml": head + "components: [{name: web, source: ./web}]\n" +
		"images: {web: \"registry.example/shop/web:1.4.0\"}\n"}
	for file, text := range files {
		texts["web/"+file] = text
	}
	folder = write(t, texts)
	lock := &build.Lock{Images: map[string]build.ResolvedImage{
		"web": {From: "registry.example/shop/web:1.4.0", Image: "registry.example/shop/web@" + digestA},
	}}
	release, err = buildIn(t, folder, build.Options{Lock: lock})
	return folder, release, err
}

// configMapOf returns a ConfigMap with a text.
func configMapOf(text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata:\n  text: |\n    " +
		strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

// TestReadersChangeNothing in a release that was built: it is applied as it is extracted.
func TestReadersChangeNothing(t *testing.T) {
	_, release, err := buildOf(t, map[string]string{
		"a.yaml": deployment("other", "other.example/web@"+digestB) + "---\n" + deployment("web",
			"registry.example/shop/web:1.4.0"),
		"b.yaml": `apiVersion: shop.example/v1
kind: Web
metadata: {name: web, namespace: shop}
spec:
  image: other.example/web@` + digestA + `
  old: other.example/web:1
  "other.example/web:1": a key
  "registry.example/shop/web:1.4.0": another
  text: registry.example/shop/web@` + digestB + "\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	texts := filesOf(t, release)
	documents := append(strings.Split(texts["0000_50_web_a.yaml"], "---\n"), texts["0000_50_web_b.yaml"])
	for i, m := range release.Payload.All() {
		var want map[string]any
		if err := yaml.Unmarshal([]byte(documents[i]), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, m.Object().Object); diff != "" {
			t.Errorf("%s is not what the release has:\n%s", m.ID(), diff)
		}
	}
	if !strings.Contains(documents[2], `"registry.example/shop/web:1.4.0": another`) {
		t.Errorf("a key was changed in\n%s", documents[2])
	}
}

// TestImagesAreWholeWords in texts: a part of another image is not replaced.
func TestImagesAreWholeWords(t *testing.T) {
	const web = "registry.example/shop/web:1.4.0"
	kept := strings.Join([]string{
		"mirror.example/" + web, "my-" + web, "x." + web, "registry.example/shop/web/ui:1", "https://" + web,
		"user@" + web, "registry.example/shop/web: a key", "registry.example/shop/web@" + digestB,
		"registry.example/shop/web:1.4.0@" + digestB,
	}, "\n")
	changed := strings.Join([]string{
		"--image=" + web, "docker://" + web, web + "," + web, "[" + web + "]", "(" + web + ")",
		"registry.example/shop/web", "registry.example/shop/web:1.3.0@" + digestA,
	}, "\n")
	_, release, err := buildOf(t, map[string]string{"a.yaml": configMapOf(kept + "\n" + changed)})
	if err != nil {
		t.Fatal(err)
	}
	image := "registry.example/shop/web@" + digestA
	want := kept + "\n" + strings.Join([]string{
		"--image=" + image, "docker://" + image, image + "," + image, "[" + image + "]", "(" + image + ")",
		image, image,
	}, "\n")
	if diff := cmp.Diff(configMapOf(want), filesOf(t, release)["0000_50_web_a.yaml"]); diff != "" {
		t.Error(diff)
	}
}

// TestImagesInEscapedTexts as in JSON, where line breaks and slashes may be escaped.
func TestImagesInEscapedTexts(t *testing.T) {
	image := "registry.example/shop/web@" + digestA
	_, release, err := buildOf(t, map[string]string{
		"a.json": `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"},
"data": {"a": "image: registry.example\/shop\/web:1.4.0", "b": "image:\n  registry.example/shop/web:1.4.0\n\"",
"c": "\u00e4 <a\/b>", "registry.example/shop/web:1.4.0": "a key"}}
`})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"},
"data": {"a": "image: ` + image + `", "b": "image:\n  ` + image + `\n\"",
"c": "\u00e4 <a\/b>", "registry.example/shop/web:1.4.0": "a key"}}
`
	if diff := cmp.Diff(want, filesOf(t, release)["0000_50_web_a.json"]); diff != "" {
		t.Error(diff)
	}
}

// TestImagesOfOneNameAndDigest get different names.
func TestImagesOfOneNameAndDigest(t *testing.T) {
	finished := make(chan map[string]string, 1)
	go func() {
		_, release, err := buildOf(t, map[string]string{"a.yaml": deployment("a", "a.example/web@"+digestA) +
			"---\n" + deployment("b", "b.example/web@"+digestA)})
		if err != nil {
			t.Error(err)
			finished <- nil
			return
		}
		finished <- release.Payload.Images
	}()
	select {
	case images := <-finished:
		want := map[string]string{
			"web": "registry.example/shop/web@" + digestA, "web-2": "a.example/web@" + digestA,
			"web-3": "b.example/web@" + digestA,
		}
		if diff := cmp.Diff(want, images); diff != "" {
			t.Error(diff)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the build does not end")
	}
}

func TestRefusedImages(t *testing.T) {
	customResource := "apiVersion: shop.example/v1\nkind: Web\nmetadata: {name: web, namespace: shop}\n" +
		"spec: {nested: [{containers: [{name: a, image: other.example/a:1}]}]}\n"
	template := "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: web, namespace: shop}\n" +
		"template: {spec: {containers: [{name: a, image: other.example/a:1}]}}\n"
	for name, test := range map[string]struct{ text, want string }{
		"another image with this one in its name": {deployment("web", "mirror.example/registry.example/shop/web:2.0.0"),
			"web/a.yaml:16:9: Deployment shop/web: image mirror.example/registry.example/shop/web:2.0.0 is not " +
				"resolved: add it under images of release.yaml, as in " +
				`"web-2: mirror.example/registry.example/shop/web:2.0.0"`},
		"another digest": {deployment("web", "registry.example/shop/web@"+digestB),
			"web/a.yaml:16:9: Deployment shop/web: image registry.example/shop/web@" + digestB + " is not resolved: " +
				"it has the digest " + digestB + ", and the image web of the release is registry.example/shop/web@" +
				digestA + ": name the same"},
		"another digest and a tag": {deployment("web", "registry.example/shop/web:1.4.0@"+digestB),
			"web/a.yaml:16:9: Deployment shop/web: image registry.example/shop/web:1.4.0@" + digestB + " is not " +
				"resolved: it has the digest " + digestB + ", and the image web of the release is " +
				"registry.example/shop/web@" + digestA + ": name the same"},
		"a part without a version": {configMapOf("0.0.1-snapshot-kernel"),
			`web/a.yaml:6: 0.0.1-snapshot-kernel stands for the version of "kernel", which the release does not ` +
				`declare, or declares twice`},
		"a custom resource": {customResource, "web/a.yaml:4:41: Web shop/web: image other.example/a:1 is " +
			`not resolved: add it under images of release.yaml, as in "a: other.example/a:1"`},
		"a template": {template, "web/a.yaml:4:42: PodTemplate shop/web: image other.example/a:1 is " +
			`not resolved: add it under images of release.yaml, as in "a: other.example/a:1"`},
	} {
		t.Run(name, func(t *testing.T) {
			folder, _, err := buildOf(t, map[string]string{"a.yaml": test.text})
			if diff := cmp.Diff(test.want, errorOf(t, err, folder, "")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTagsOfASharedRepository choose an image, also in a component with placeholders.
func TestTagsOfASharedRepository(t *testing.T) {
	folder := write(t, map[string]string{
		"release.yaml": head + "components: [{name: web, source: ./web}]\n" +
			"images: {one: \"registry.example/all:one\", two: \"registry.example/all:two\"}\n",
		"web/a.yaml": deployment("one", "registry.example/all:one") + "---\n" + deployment("two", "x.example/two"),
		"web/image-references": "kind: ImageStream\napiVersion: image.openshift.io/v1\nspec: {tags: [{name: two, " +
			"from: {kind: DockerImage, name: x.example/two}}]}\n",
	})
	lock := &build.Lock{Images: map[string]build.ResolvedImage{
		"one": {From: "registry.example/all:one", Image: "registry.example/all@" + digestA},
		"two": {From: "registry.example/all:two", Image: "registry.example/all@" + digestB},
	}}
	release, err := buildIn(t, folder, build.Options{Lock: lock})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"image: registry.example/all@" + digestA, "image: registry.example/all@" + digestB} {
		if text := filesOf(t, release)["0000_50_web_a.yaml"]; !strings.Contains(text, image) {
			t.Errorf("%s is missing in\n%s", image, text)
		}
	}
}
