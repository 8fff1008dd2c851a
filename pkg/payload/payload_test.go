package payload_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/payload"
)

// files makes a file system of names and contents.
func files(t testing.TB, contents map[string]string) fs.FS {
	t.Helper()
	made := fstest.MapFS{}
	for name, text := range contents {
		made[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return made
}

// release is a release in the cluster-version operator's shape, with these files
// beside its metadata.
func release(t testing.TB, contents map[string]string) fs.FS {
	t.Helper()
	all := map[string]string{
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3","previous":["1.2.2"]}`,
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[
{"name":"web","from":{"kind":"DockerImage","name":"registry.example/team/web@sha256:aaaa"}},
{"name":"api","from":{"kind":"DockerImage","name":"registry.example/team/api:v2"}}]}}`,
	}
	for name, text := range contents {
		all[name] = text
	}
	return files(t, all)
}

func parse(t testing.TB, files fs.FS, options payload.Options) (*payload.Payload, []payload.Problem) {
	t.Helper()
	read, problems, err := payload.Parse(t.Context(), files, options)
	if err != nil {
		t.Fatal(err)
	}
	return read, problems
}

func lines(problems []payload.Problem) []string {
	var lines []string
	for _, problem := range problems {
		lines = append(lines, problem.String())
	}
	return lines
}

// names are the objects of a payload, in order.
func names(p *payload.Payload) []string {
	var names []string
	for _, m := range p.Manifests {
		names = append(names, m.ID().String())
	}
	return names
}

// configMap is a manifest with annotations, as lines such as `key: "value"`.
func configMap(name string, annotations ...string) string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n  namespace: here\n"
	if len(annotations) > 0 {
		text += "  annotations:\n    " + strings.Join(annotations, "\n    ") + "\n"
	}
	return text
}

func TestManifestsAreInTheOrderOfTheirFiles(t *testing.T) {
	p, problems := parse(t, release(t, map[string]string{
		"manifests/0000_90_own_a.yaml":     configMap("own-90"),
		"release-manifests/0000_5_b_a.yml": configMap("five"),
		"release-manifests/0000_10_b_b.yaml": configMap("ten-b1") + "---\n# nothing here\n--- # a comment\n" +
			configMap("ten-b2"),
		"release-manifests/0000_10_b_a.json":    `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ten-a1"}} {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ten-a2"}}`,
		"release-manifests/README.md":           "no manifest",
		"release-manifests/deeper/ignored.yaml": configMap("deeper"),
		"release-manifests/like.yaml/file.yaml": configMap("deeper"),
	}), payload.Options{})
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	want := []string{
		"ConfigMap here/own-90", "ConfigMap ten-a1", "ConfigMap ten-a2",
		"ConfigMap here/ten-b1", "ConfigMap here/ten-b2", "ConfigMap here/five",
	}
	if diff := cmp.Diff(want, names(p)); diff != "" {
		t.Error(diff)
	}
	if got := p.Manifests[4]; got.Line != 9 || got.Document != 2 {
		t.Errorf("the second document is number %d at line %d, want 2 at line 9", got.Document, got.Line)
	}
	if p.Version != "1.2.3" || p.Images["api"] != "registry.example/team/api:v2" || p.Metadata.Previous[0] != "1.2.2" {
		t.Errorf("metadata is lost: %q %v %v", p.Version, p.Images, p.Metadata)
	}
}

func TestTemplatesAreRenderedInManifestsOnly(t *testing.T) {
	text := configMap("a", `image: "{{.ReleaseImage}} {{.ClusterProfile}} {{index .Images "web"}}"`)
	p, problems := parse(t, release(t, map[string]string{
		"manifests/a.yaml":         text,
		"release-manifests/b.yaml": strings.Replace(text, "name: a", "name: b", 1),
	}),
		payload.Options{ReleaseImage: "registry.example/release:1"})
	if len(problems) != 1 || !strings.Contains(problems[0].String(), "release-manifests/b.yaml") {
		t.Fatalf("only release-manifests/b.yaml should be broken YAML, unrendered: %v", lines(problems))
	}
	if got, want := p.Manifests[0].Object().GetAnnotations()["image"], "registry.example/release:1  "+
		"registry.example/team/web@sha256:aaaa"; got != want {
		t.Errorf("rendered %q, want %q", got, want)
	}
}

func TestInvalidTemplateRefusesTheRelease(t *testing.T) {
	for name, test := range map[string]struct{ template, want string }{
		"no such field": {"{{.Nothing}}",
			"manifests/a.yaml:7: its template can't be rendered: unknown field Nothing: this runlevel knows " +
				".ClusterProfile, .Images, .ReleaseImage; a newer one may know it"},
		"no such image": {"{{.Images.nope}}",
			`manifests/a.yaml:7: its template can't be rendered: <.Images.nope>: map has no entry for key "nope"`},
		"bad syntax": {"{{if}}", "manifests/a.yaml:7: its template can't be rendered: missing value for if"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, release(t, map[string]string{
				"manifests/a.yaml": configMap("a", "value: "+test.template), "release-manifests/b.yaml": configMap("b"),
			}), payload.Options{})
			if diff := cmp.Diff([]string{test.want}, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLinesOfATemplate(t *testing.T) {
	text := "{{/*\n\n*/}}\n" + configMap("a", "a: 1")
	_, problems := parse(t, release(t,
		map[string]string{"manifests/a.yaml": text, "release-manifests/b.yaml": configMap("b")}), payload.Options{})
	if len(problems) != 1 || !strings.HasSuffix(problems[0].String(), "(the line is that of the rendered template)") {
		t.Error(lines(problems))
	}
}

func TestImagesAreSubstitutedEverywhere(t *testing.T) {
	text := configMap("NAME") + `data:
  tag: registry.example/team/web:latest
  digest: "registry.example/team/web@sha256:0000"
  bare: registry.example/team/web
  other: registry.example/team/web-console:1
  longer: registry.example/team/web/console:1
  inside: "x=registry.example/team/api y=1"
  several: "registry.example/team/web:1 registry.example/team/web:2 registry.example/team/web"
`
	want := map[string]string{
		"tag":    "registry.example/team/web@sha256:aaaa",
		"digest": "registry.example/team/web@sha256:0000",
		"bare":   "registry.example/team/web@sha256:aaaa",
		"other":  "registry.example/team/web-console:1",
		"longer": "registry.example/team/web/console:1",
		"inside": "x=registry.example/team/api:v2 y=1",
		"several": "registry.example/team/web@sha256:aaaa registry.example/team/web@sha256:aaaa " +
			"registry.example/team/web@sha256:aaaa",
	}
	p, problems := parse(t, release(t, map[string]string{
		"manifests/a.yaml":         strings.Replace(text, "NAME", "a", 1),
		"release-manifests/b.yaml": strings.Replace(text, "NAME", "b", 1),
	}), payload.Options{})
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	for _, m := range p.Manifests {
		got := map[string]string{}
		for key, value := range m.Object().Object["data"].(map[string]any) {
			got[key] = value.(string)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", m.Path, diff)
		}
	}
}

// TestABuiltReleaseIsReadAsItIs since its build has put the images into the manifests.
func TestABuiltReleaseIsReadAsItIs(t *testing.T) {
	p, problems := parse(t, release(t, map[string]string{
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":` +
			`{"name":"1.2.3","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"tags":[` +
			`{"name":"a","from":{"kind":"DockerImage","name":"registry.example/a@sha256:aaaa"}}]}}`,
		"release-manifests/a.yaml": configMap("a", `old: "registry.example/a:1"`),
	}), payload.Options{})
	if got := p.Manifests[0].Object().GetAnnotations()["old"]; got != "registry.example/a:1" || len(problems) > 0 {
		t.Errorf("got image %s and problems %v", got, lines(problems))
	}
}

func TestAComponentsPlaceholders(t *testing.T) {
	component := func(references string) fs.FS {
		return files(t, map[string]string{
			"image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[` +
				references + `]}}`,
			"a.yaml": configMap("a", `image: 'placeholder.example/origin-api:v4.0'`),
		})
	}
	images := map[string]string{"api": "registry.example/all@sha256:aaaa", "web": "registry.example/all@sha256:bbbb"}
	for name, test := range map[string]struct {
		references string
		image      string
		problems   []string
	}{
		"one": {`{"name":"api","from":{"kind":"DockerImage","name":"placeholder.example/origin-api"}}`,
			images["api"], nil},
		"unreleased": {`{"name":"cli","from":{"kind":"DockerImage","name":"x"}}`, "",
			[]string{`image-references: no image "cli" to put in the place of x`}},
		"for several": {`{"name":"api","from":{"kind":"DockerImage","name":"x"}},{"name":"web","from":{"kind":"DockerImage","name":"x"}}`, "", []string{`image-references: x stands for two images, "api" and "web"`}},
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := parse(t, component(test.references),
				payload.Options{Release: &payload.References{Images: images}})
			if diff := cmp.Diff(test.problems, lines(problems)); diff != "" {
				t.Error(diff)
			}
			if got := p.Manifests[0].Object().GetAnnotations()["image"]; test.image != "" && got != test.image {
				t.Errorf("got image %q", got)
			}
		})
	}
}

// Without a release, a component's folder has only the images with a digest.
func TestUnchangedPlaceholders(t *testing.T) {
	p, problems := parse(t, files(t, map[string]string{
		"image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[
{"name":"api","from":{"kind":"DockerImage","name":"registry.example/api:v0"}},{"name":"web","from":{"kind":"DockerImage","name":"registry.example/web:v0"}},
{"name":"pinned","from":{"kind":"DockerImage","name":"registry.example/pinned@sha256:aaaa"}}]}}`,
		"a.yaml": configMap("a", `other: "registry.example/api:v01 aregistry.example/api:v0 registry.example/pinned"`,
			`image: "registry.example/api:v0"`, `again: "registry.example/api:v0"`),
		"b.yaml": configMap("b", `image: "registry.example/web:v1"`),
	}), payload.Options{})
	want := []string{"a.yaml:8: registry.example/api:v0 is a placeholder of image-references, and no image takes its " +
		"place: give one by --image api=IMAGE"}
	if diff := cmp.Diff(want, lines(problems)); diff != "" {
		t.Error(diff)
	}
	if got := p.Manifests[1].Object().GetAnnotations()["image"]; got != "registry.example/web:v1" {
		t.Errorf("got given image %q", got)
	}
	if got := p.Manifests[0].Object().GetAnnotations()["other"]; !strings.HasSuffix(got,
		" registry.example/pinned@sha256:aaaa") {
		t.Errorf("got image by digest %q", got)
	}
}

func TestOnlyImagesWithARegistryAreSubstituted(t *testing.T) {
	p, problems := parse(t, release(t, map[string]string{
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[
{"name":"a","from":{"kind":"DockerImage","name":"redis:7"}},{"name":"b","from":{"kind":"DockerImage","name":"shop/web:1"}}]}}`,
		"release-manifests/a.yaml": configMap("redis", `uses: "shop/web"`),
	}), payload.Options{})
	if m := p.Manifests[0]; m.ID().Name != "redis" || m.Object().GetAnnotations()["uses"] != "shop/web" ||
		len(problems) > 0 {
		t.Errorf("got %v with annotations %v and problems %v", m.ID(), m.Object().GetAnnotations(), lines(problems))
	}
}

func TestImagesForAComponentWithoutPlaceholders(t *testing.T) {
	p, problems := parse(t, files(t, map[string]string{"a.yaml": configMap("a")}),
		payload.Options{Release: &payload.References{Images: map[string]string{
			"api":  "registry.example/api:1",
			"none": "",
		}}})
	want := []string{"image-references: it is missing, so nothing stands for the images of the release"}
	if diff := cmp.Diff(want, lines(problems)); diff != "" || p.Images["api"] == "" {
		t.Error(diff, p.Images)
	}
}

func TestARepositoryOfSeveralImagesIsLeftAlone(t *testing.T) {
	p, problems := parse(t, release(t, map[string]string{
		"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[
{"name":"a","from":{"kind":"DockerImage","name":"registry.example/all@sha256:aaaa"}},
{"name":"b","from":{"kind":"DockerImage","name":"registry.example/all@sha256:bbbb"}}]}}`,
		"release-manifests/a.yaml": configMap("a",
			`images: "registry.example/all@sha256:aaaa registry.example/all@sha256:bbbb"`),
	}), payload.Options{})
	if got := p.Manifests[0].Object().GetAnnotations()["images"]; got != "registry.example/all@sha256:aaaa "+
		"registry.example/all@sha256:bbbb" || len(problems) > 0 {
		t.Errorf("got images %q and problems %v", got, lines(problems))
	}
}

func TestTheNameOfARelease(t *testing.T) {
	whole, plain := release(t, map[string]string{"release-manifests/a.yaml": configMap("a")}),
		files(t, map[string]string{"a.yaml": configMap("a")})
	for name, test := range map[string]struct {
		files       fs.FS
		named, want string
	}{
		"a release has one": {whole, "", "default"},
		"unless it's named": {whole, "mine", "mine"},
		"a folder has none": {plain, "", ""},
		"until it's named":  {plain, "mine", "mine"},
	} {
		if p, _ := parse(t, test.files, payload.Options{Name: test.named}); p.Name != test.want {
			t.Errorf("%s: got name %q", name, p.Name)
		}
	}
}

func TestHashOfARelease(t *testing.T) {
	hash := func(contents map[string]string) string {
		p, _ := parse(t, files(t, contents), payload.Options{})
		return p.Hash
	}
	item := hash(map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("b")})
	for range 20 { // files are read in parallel, in any order
		if again := hash(map[string]string{"a.yaml": configMap("a"), "b.yaml": configMap("b")}); again != item {
			t.Fatalf("the same files have hashes %s and %s", item, again)
		}
	}
	for name, other := range map[string]map[string]string{
		"content":  {"a.yaml": configMap("a"), "b.yaml": configMap("c")},
		"name":     {"a.yaml": configMap("a"), "c.yaml": configMap("b")},
		"presence": {"a.yaml": configMap("a")},
		"order":    {"a.yaml": configMap("b"), "b.yaml": configMap("a")},
	} {
		if hash(other) == item {
			t.Errorf("another %s has the same hash", name)
		}
	}
	const pinned = "sha256:5f456651" // hash of this release: it must not change between versions of Runlevel
	if !strings.HasPrefix(item, pinned) {
		t.Errorf("the hash is %s, want %s…", item, pinned)
	}
}

func TestLoadRefusesWithAllProblems(t *testing.T) {
	_, _, err := payload.Load(t.Context(), files(t, map[string]string{
		"a.yaml": configMap("a", "release.openshift.io/delete: true"),
		"b.yaml": "kind: [",
		"c.yaml": configMap("c"),
	}), payload.Options{})
	if got := reason.Of(err); got != payload.Integrity {
		t.Errorf("the reason is %q", got)
	}
	var problems payload.Problems
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Errorf("want both problems, got: %v", err)
	}
}

func TestLoadGivesWarningsBesideThePayload(t *testing.T) {
	p, warnings, err := payload.Load(t.Context(), files(t, map[string]string{"a.yaml": configMap("a") + "dada: {}\n"}),
		payload.Options{})
	if err != nil || len(p.Manifests) != 1 {
		t.Fatal(err)
	}
	want := []string{`a.yaml:6: document 1: ConfigMap here/a: unknown field "dada": is it misspelt?`}
	if diff := cmp.Diff(want, lines(warnings)); diff != "" {
		t.Error(diff)
	}
}

func TestParseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := payload.Parse(ctx, files(t, map[string]string{"a.yaml": configMap("a")}), payload.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
}

// corpus is the folder of a real release, which RUNLEVEL_TEST_RELEASE may name.
func corpus(t testing.TB) fs.FS {
	t.Helper()
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	return os.DirFS(folder)
}

func TestARealReleaseLoads(t *testing.T) {
	p, _, err := payload.Load(t.Context(), corpus(t), payload.Options{Filter: payload.Filter{
		Profile: "self-managed-high-availability", FeatureSet: "Default", FeatureGates: []string{},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tombstones := 0
	for _, m := range p.Manifests {
		if m.IsTombstone() {
			tombstones++
		}
	}
	if len(p.Manifests) == 0 || len(p.Excluded) == 0 || tombstones == 0 {
		t.Errorf("%d in, %d out, %d tombstones", len(p.Manifests), len(p.Excluded), tombstones)
	}
}

// TestRenderedManifestsReadTheSame writes each manifest of a release and reads it
// again.
func TestRenderedManifestsReadTheSame(t *testing.T) {
	p, _ := parse(t, corpus(t), payload.Options{})
	for _, m := range p.Manifests {
		text, err := m.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, problems := parse(t, files(t, map[string]string{m.File(): string(text)}), payload.Options{})
		if len(again.Manifests) != 1 {
			t.Fatalf("%s: %v", m.Path, lines(problems))
		}
		if diff := cmp.Diff(m.Object().Object, again.Manifests[0].Object().Object); diff != "" {
			t.Fatalf("%s: %s", m.Path, diff)
		}
	}
}

func ExampleLoad() {
	release := fstest.MapFS{"0000_10_web_config.yaml": {Data: []byte(configMap("settings"))}}
	p, _, err := payload.Load(context.Background(), release, payload.Options{Version: "1.0.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range p.Manifests {
		fmt.Println(m.File(), m.ID())
	}
	// Output: 0000_10_web_config.yaml ConfigMap here/settings
}
