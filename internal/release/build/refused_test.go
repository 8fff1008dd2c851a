package build_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/empty"

	"github.com/runlevel/runlevel/internal/release/build"
)

// digests match digests.
var digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

const head = "name: shop\nversion: 1.0.0\n"

func TestBadConfig(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing": {"", `release.yaml:1: it is empty: "runlevel release build --help" has an example`},
		"a list": {"[]",
			`release.yaml:1: a value has the wrong type: "runlevel release build --help" has an example`},
		"not YAML": {"name: [\n", `release.yaml:1: a value is missing, or a "[" or "{" is not closed: add it`},
		"missing fields": {"images: {}\n",
			`release.yaml:1: name: write up to 63 lower-case letters, digits and dashes, as in shop
release.yaml:1: version: write a semantic version of at most 128 characters without build metadata, as in 1.4.0
release.yaml:1: components: a release needs components, as in {name: web, source: ./web}`},
		"misspelt": {head + "component: []\nvalues: {}\n", `release.yaml:3: unknown field component: write components
release.yaml:4: unknown field values: the fields are name, version, previous, channels, components, images`},
		"wrong types": {head + "previous: 1.3.0\nimages: [a]\n",
			`release.yaml:3: previous: write a list, as in [1.3.0]
release.yaml:4: a value has the wrong type: "runlevel release build --help" has an example`},
		"twice": {head + "name: other\n", `release.yaml:3: mapping key "name" already defined at line 1: remove one`},
		"values": {"name: Shop\nversion: 1.0\nprevious: [\"1\", 1.0.0, 1.0.0]\nchannels: [\"a,b\"]\ncomponents: " +
			"[{name: web, source: web}]\n",
			`release.yaml:1: name: write up to 63 lower-case letters, digits and dashes, as in shop
release.yaml:2: version: write a semantic version of at most 128 characters without build metadata, as in 1.4.0
release.yaml:3: previous: "1" is not a semantic version: write one such as 1.3.2
release.yaml:3: previous: 1.0.0 is the release itself, or occurs twice: remove it
release.yaml:4: channels: "a,b" has a comma or blank, or is empty: rename it`},
		"build metadata": {"name: shop\nversion: 1.0.0+5\ncomponents: [{name: web, source: web}]\n",
			`release.yaml:2: version: write a semantic version of at most 128 characters without build metadata, as in 1.4.0`},
		"a long version": {"name: shop\nversion: 1.0.0-" + strings.Repeat("a", 128) +
			"\ncomponents: [{name: web, source: web}]\n",
			`release.yaml:2: version: write a semantic version of at most 128 characters without build metadata, as in 1.4.0`},
		"an unusual line break": {"name: shop\n# a\u2028\nversion: 1.0.0\n",
			`release.yaml:2: it has a line break of an unusual kind: write a line feed`},
		"a directive": {"%YAML 1.2\n---\nname: shop\n", `release.yaml:1: found incompatible YAML document`},
		"components": {head + "components:\n- name: web\n- {name: we_b, source: x}\n- {name: api, source: x}\n- " +
			"{name: api, source: y}\n",
			`release.yaml:4: a component needs both, as in {name: web, source: ./web}
release.yaml:5: "we_b" can't be the name of a component: write letters and digits, with single dashes between them, as in web-server
release.yaml:7: two components are named api: rename one`},
		"fields of components": {head + "components:\n- {name: web, sourse: y}\n- web\n",
			`release.yaml:4: unknown field sourse: write source
release.yaml:5: a value has the wrong type: "runlevel release build --help" has an example`},
		"images": {head + "components: [{name: web, source: web}]\nimages:\n  web: web:1.0\n  a b: " +
			"registry.example/a:1\n  api: registry.example/api\n  hub: docker.io/nginx:1\n",
			`release.yaml:5: image web: not an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag
release.yaml:6: image a b: its name must be of letters, digits, dashes, dots and underscores
release.yaml:8: image hub: not an image reference: write docker.io/library/nginx:1
release.yaml:7: image api: not an image reference: an image needs its registry and a tag or digest, as in registry.example/repo:tag`},
	} {
		t.Run(name, func(t *testing.T) {
			folder := write(t, map[string]string{"release.yaml": test.text})
			_, err := build.ReadConfig(folder)
			got := strings.Split(errorOf(t, err, folder, ""), "\n")
			want := strings.Split(test.want, "\n")
			if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := build.ReadConfig(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "release build --help") {
		t.Errorf("got %v for a folder without the file, want an error with the next step", err)
	}
}

func sorted(lines []string) []string { return sortedKeys(toSet(lines)) }

func toSet(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, line := range lines {
		set[line] = true
	}
	return set
}

// TestBadComponents have one line for each mistake, with its file.
func TestBadComponents(t *testing.T) {
	host := startRegistry(t)
	push(t, host+"/shop/nolabel:1", imageOf(t, nil, map[string]string{"manifests/a.yaml": "{}"}))
	push(t, host+"/shop/nomanifests:1", imageOf(t, map[string]string{"io.openshift.release.operator": "true"},
		map[string]string{"a": "a"}))
	push(t, host+"/shop/dots:1", imageOf(t, map[string]string{"io.openshift.release.operator": "true"},
		map[string]string{"manifests/../../a.yaml": "a"}))
	push(t, host+"/shop/none:1", empty.Index)
	for name, test := range map[string]struct {
		component string
		files     map[string]string
		images    string
		want      string
	}{
		"no folder": {"./web", nil, "", `release.yaml:3: component web: web: no such file or folder`},
		"neither a folder nor an image": {"web", nil, "",
			`release.yaml:3: component web: web: not an image reference: an image ` +
				`needs its registry and a tag or digest, as in registry.example/repo:tag; and there is no such file or folder`},
		"no manifests": {"./web", map[string]string{"web/README.md": ""}, "",
			`release.yaml:3: component web: web: it has no manifest: a manifest is a .yaml, .yml or .json file`},
		"no label": {"REGISTRY/shop/nolabel:1", nil, "",
			`release.yaml:3: component web: REGISTRY/shop/nolabel:1: the image has no label ` +
				`io.openshift.release.operator, so it is not the image of a component: build it with LABEL ` +
				`io.openshift.release.operator=true, or list it under images`},
		"an image without manifests": {"REGISTRY/shop/nomanifests:1", nil, "", `release.yaml:3: component web: ` +
			`REGISTRY/shop/nomanifests@sha256:… is not a release image: it has neither manifests/ nor release-manifests/`},
		"dots": {"REGISTRY/shop/dots:1", nil, "", `release.yaml:3: component web: REGISTRY/shop/dots@sha256:…: layer ` +
			`sha256:…: entry "manifests/../../a.yaml": its name has ".." in it`},
		"no such image": {"./web", map[string]string{"web/a.yaml": deployment("web", "x")},
			"{a: REGISTRY/shop/other:1, b: REGISTRY/shop/nolabel:2, c: REGISTRY/shop/none:1}",
			`release.yaml:4: image a: REGISTRY/shop/other:1: the registry has no such image
release.yaml:4: image b: REGISTRY/shop/nolabel:2: the registry has no such image
release.yaml:4: image c: REGISTRY/shop/none:1: index sha256:… has no image for any platform`},
		"an unresolved image": {"./web", map[string]string{
			"web/a.yaml": "\n---\n" + deployment("web", "other.example/web:1"),
			"web/b.yaml": strings.Replace(deployment("api", "api"), "        image",
				"        env: [{name: RELATED_IMAGE_X, value: other.example/x:2}, {name: Y, value: "+
					"other.example/y:2}]\n        image", 1),
		}, "",
			`web/a.yaml:18:9: Deployment shop/web: image other.example/web:1 is not resolved: add it under images of release.yaml, as in "web: other.example/web:1"
web/b.yaml:16:39: Deployment shop/api: image other.example/x:2 is not resolved: add it under images of release.yaml, as in "x: other.example/x:2"
web/b.yaml:17:9: Deployment shop/api: image api is not resolved: write it with its registry and a tag, and add that under images of release.yaml`},
		"one repository": {"./web", map[string]string{"web/a.yaml": deployment("web", "REGISTRY/shop/nolabel:3")},
			"{a: REGISTRY/shop/nolabel:1, b: REGISTRY/shop/nolabel:one}",
			`web/a.yaml:16:9: Deployment shop/web: image REGISTRY/shop/nolabel:3 is not resolved: release.yaml has several images of its repository, so the tag must be one of theirs: write REGISTRY/shop/nolabel:1 or REGISTRY/shop/nolabel:one`},
		"a placeholder of nothing": {"./web", map[string]string{"web/a.yaml": deployment("web", "x"),
			"web/image-references": "kind: ImageStream\napiVersion: image.openshift.io/v1\nspec: {tags: [{name: web, " +
				"from: {kind: DockerImage, name: x.example/web}}]}\n"},
			"",
			`web/image-references: the release has no image "web", which x.example/web stands for: add it under images of release.yaml`},
		"a placeholder that may be anything": {"./web", map[string]string{"web/a.yaml": deployment("web", "x"),
			"web/image-references": "kind: ImageStream\napiVersion: image.openshift.io/v1\nspec: {tags: [{name: web, " +
				"from: {kind: DockerImage, name: web}}]}\n"}, "", `web/image-references: web stands for the image ` +
			`"web", and may also be another word of a manifest: write a placeholder such as placeholder.example/web`},
		"a backslash": {"./web", map[string]string{`web/back\slash.yaml`: "{}"}, "",
			`web/back\slash.yaml: its name has a backslash, and readers refuse a release with one: rename it`},
		"bad image-references": {"./web",
			map[string]string{"web/a.yaml": deployment("web", "x"), "web/image-references": "a: b"},
			"", `web/image-references: this is "" of "": it must be ImageStream of image.openshift.io/v1`},
		"bad YAML with an image": {"./web", map[string]string{"web/a.yaml": "a: REGISTRY/shop/nolabel:1\nb: [\n"},
			"{a: REGISTRY/shop/nolabel:1}", `web/a.yaml:2: a value is missing, or a "[" or "{" is not closed: add it`},
		"an unknown version": {"./web", map[string]string{"web/a.yaml": "\na: 0.0.1-snapshot-kernel\n"},
			"{a: REGISTRY/shop/parts:1}",
			`web/a.yaml:2: 0.0.1-snapshot-kernel stands for the version of "kernel", which the release does not declare, or declares twice`},
		"two files of one name": {"./web", map[string]string{"web/a.yaml": "{}", "web/0000_50_web_a.yaml": "{}"}, "",
			`web/a.yaml: in the release it is 0000_50_web_a.yaml, as is web/0000_50_web_a.yaml: rename one`},
	} {
		t.Run(name, func(t *testing.T) {
			push(t, host+"/shop/nolabel:one", imageOf(t, nil, map[string]string{"one": "1"}))
			push(t, host+"/shop/parts:1",
				imageOf(t, map[string]string{"io.openshift.build.versions": "kubernetes=1.34.0"}, nil))
			texts := map[string]string{"release.yaml": head + "components: [{name: web, source: " + test.component +
				"}]\n"}
			if test.images != "" {
				texts["release.yaml"] += "images: " + test.images + "\n"
			}
			for file, text := range test.files {
				texts[file] = text
			}
			for file := range texts {
				texts[file] = strings.ReplaceAll(texts[file], "REGISTRY", host)
			}
			folder := write(t, texts)
			_, err := buildIn(t, folder, build.Options{})
			if diff := cmp.Diff(test.want,
				digests.ReplaceAllString(errorOf(t, err, folder, host), "sha256:…")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLinksThatLeadOut are refused, as are large files.
func TestLinksThatLeadOut(t *testing.T) {
	folder := write(t, map[string]string{
		"release.yaml": head + "components: [{name: web, source: ./web}]\n", "web/a.yaml": "{}", "secret.yaml": "{}",
	})
	link := filepath.Join(folder, "web/b.yaml")
	if err := os.Symlink("../secret.yaml", link); err != nil {
		t.Fatal(err)
	}
	_, err := buildIn(t, folder, build.Options{})
	if text := errorOf(t, err, folder, ""); !strings.Contains(text, `b.yaml: link to "../secret.yaml": path escapes`) {
		t.Errorf("got %s, want an error about the link", text)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(link, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(link, 33<<20); err != nil {
		t.Fatal(err)
	}
	_, err = buildIn(t, folder, build.Options{})
	if text := errorOf(t, err, folder, ""); !strings.Contains(text,
		"b.yaml: it has 34603008 bytes: the limit for one file is 32 MiB") {
		t.Errorf("got %s, want an error about the size", text)
	}
}

// TestLinksToOtherFiles than manifests are left out like such files.
func TestLinksToOtherFiles(t *testing.T) {
	folder := plainFolder(t)
	if err := os.Symlink("../../nowhere", filepath.Join(folder, "web/README.md")); err != nil {
		t.Fatal(err)
	}
	release, err := buildIn(t, folder, build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(folder, "web/README.md")}, release.Ignored); diff != "" {
		t.Error(diff)
	}
}

// TestAnOldLockStays if the new one can't be written.
func TestAnOldLockStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file+".part", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := new(build.Lock).Write(file); err == nil {
		t.Error("the lock was written, want an error")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "old" {
		t.Errorf("the old lock is %q (%v)", text, err)
	}
}

// TestTheSchemaHasEachField checks the schema, which editors use.
func TestTheSchemaHasEachField(t *testing.T) {
	text, err := os.ReadFile("../../../docs/schemas/release-yaml.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Items struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		fields []string
		kind   reflect.Type
	}{
		{sortedKeys(schema.Properties), reflect.TypeFor[build.Config]()},
		{sortedKeys(schema.Properties["components"].Items.Properties), reflect.TypeFor[build.Component]()},
	} {
		want := map[string]bool{}
		for field := range test.kind.Fields() {
			if name := field.Tag.Get("yaml"); name != "" {
				want[name] = true
			}
		}
		if diff := cmp.Diff(sortedKeys(want), test.fields); diff != "" {
			t.Error(diff)
		}
	}
}
