package component_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/release/component"
	"github.com/runlevel/runlevel/pkg/payload"
)

// files makes a file system of names and texts.
func files(texts map[string]string) fs.FS {
	made := fstest.MapFS{}
	for name, text := range texts {
		made[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return made
}

func configMap(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n  namespace: shop\n"
}

// list has the files of a release in a folder, by the names of the component.
func list(t *testing.T, b *component.Build, folder string) []string {
	t.Helper()
	entries, err := fs.ReadDir(b.FS, folder)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		name := strings.TrimPrefix(folder+"/"+entry.Name(), "./")
		if own, isOwn := b.Own(name); isOwn {
			found = append(found, entry.Name()+" <- "+own)
		} else if !entry.IsDir() {
			found = append(found, entry.Name())
		}
	}
	return found
}

func buildInto(t *testing.T, release, own map[string]string, names ...string) *component.Build {
	t.Helper()
	b, err := component.Into(files(release), files(own), component.Options{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFilesAreNumberedAsABuildDoes(t *testing.T) {
	for name, test := range map[string]struct {
		release, own map[string]string
		names        []string
		folder       string
		want         []string
	}{
		"a plain folder": {
			release: map[string]string{
				"0000_50_web_01.yaml": "",
				"0000_50_web_02.yaml": "",
				"0000_50_api_01.yaml": "",
				"plain.yaml":          "",
			},
			own:   map[string]string{"01.yaml": "", "0000_60_web_03.yml": "", "README.md": ""},
			names: []string{"web"}, folder: ".",
			want: []string{"0000_50_api_01.yaml", "0000_50_web_01.yaml <- 01.yaml",
				"0000_60_web_03.yml <- 0000_60_web_03.yml", "README.md <- README.md", "plain.yaml"},
		},
		"the shape of a release": {
			release: map[string]string{
				"release-manifests/release-metadata":    "{}",
				"release-manifests/0000_50_web_01.yaml": "",
				"manifests/0000_00_web_00.yaml":         "",
				"manifests/0000_00_cvo_00.yaml":         "",
			},
			own:   map[string]string{"0000_50_web_09.json": ""},
			names: []string{"web"}, folder: "release-manifests",
			want: []string{"0000_50_web_09.json <- 0000_50_web_09.json", "release-metadata"},
		},
		"a plain folder without numbers": {
			release: map[string]string{"01.yaml": "", "02.yaml": ""},
			own:     map[string]string{"01.yaml": "", "03.yaml": ""},
			names:   []string{"web"}, folder: ".",
			want: []string{"0000_50_web_03.yaml <- 03.yaml", "01.yaml <- 01.yaml", "02.yaml"},
		},
		"the same name twice": {
			release: map[string]string{"a.yaml": ""},
			own:     map[string]string{"0000_50_web_01.yaml": "", "01.yaml": ""},
			names:   []string{"web"}, folder: ".",
			want: []string{"0000_50_web_01.yaml <- 0000_50_web_01.yaml", "0000_50_web_01_2.yaml <- 01.yaml", "a.yaml"},
		},
		"files that have the same name, and are called for something else": {
			release: map[string]string{"0000_50_shop_01.yaml": "", "0000_50_shop_02.yaml": ""},
			own:     map[string]string{"0000_50_shop_01.yaml": ""},
			names:   []string{"web"}, folder: ".",
			want: []string{"0000_50_shop_01.yaml <- 0000_50_shop_01.yaml", "0000_50_shop_02.yaml"},
		},
		"two names": {
			release: map[string]string{
				"0000_50_shop_01.yaml": "",
				"0000_50_web_02.yaml":  "",
				"0000_50_api_02.yaml":  "",
			},
			own:   map[string]string{"01.yaml": ""},
			names: []string{"web", "shop"}, folder: ".",
			want: []string{"0000_50_api_02.yaml", "0000_50_web_01.yaml <- 01.yaml"},
		},
		"an operator's image": {
			release: map[string]string{"a.yaml": ""},
			own:     map[string]string{"manifests/01.yaml": "", "manifests/deeper/02.yaml": "", "bin/operator": ""},
			names:   []string{"web"}, folder: ".",
			want: []string{"0000_50_web_01.yaml <- manifests/01.yaml", "a.yaml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := buildInto(t, test.release, test.own, test.names...)
			if diff := cmp.Diff(test.want, list(t, b, test.folder)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTemplatesStayTemplates(t *testing.T) {
	b := buildInto(t, map[string]string{
		"manifests/0000_00_cvo_01.yaml": "", "manifests/0000_00_cvo_02.yaml": "",
		"release-manifests/0000_50_web_01.yaml": "",
	}, map[string]string{"0000_00_cvo_01.yaml": ""}, "cvo")
	if diff := cmp.Diff([]string{"0000_00_cvo_01.yaml <- 0000_00_cvo_01.yaml"}, list(t, b, "manifests")); diff != "" {
		t.Error(diff)
	}
}

// An image may have anything beside its manifests.
func TestNothingElseIsRead(t *testing.T) {
	own := fstest.MapFS{"01.yaml": {Data: []byte(configMap("web"))}, "app.tar": {Data: []byte("large")}}
	b, err := component.Into(files(map[string]string{"a.yaml": ""}), own, component.Options{Names: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(b.FS, "app.tar"); err != nil || len(text) > 0 {
		t.Errorf("got %q, %v, want the file of the component", text, err)
	}
}

// A manifest that can't be read must not seem to have been removed.
func TestALinkThatLeadsNowhere(t *testing.T) {
	own := fstest.MapFS{
		"01.yaml": {Data: []byte(configMap("web"))},
		"02.yaml": {Data: []byte("../nowhere.yaml"), Mode: fs.ModeSymlink},
	}
	_, err := component.Into(files(map[string]string{"a.yaml": ""}), own, component.Options{Names: []string{"web"}})
	if err == nil || !strings.Contains(err.Error(), "02.yaml") {
		t.Errorf("got %v, want an error about 02.yaml", err)
	}
}

func TestABuildIsAFileSystem(t *testing.T) {
	b := buildInto(t, map[string]string{
		"release-manifests/0000_50_web_01.yaml": "old",
		"release-manifests/0000_50_api_01.yaml": "api",
		"manifests/0000_00_cvo_01.yaml":         "",
	},
		map[string]string{"01.yaml": "new", "02.yaml": ""}, "web")
	if err := fstest.TestFS(b.FS, "release-manifests/0000_50_web_01.yaml", "release-manifests/0000_50_web_02.yaml",
		"release-manifests/0000_50_api_01.yaml"); err != nil {
		t.Error(err)
	}
	if text, err := fs.ReadFile(b.FS, "release-manifests/0000_50_web_01.yaml"); string(text) != "new" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestBadInput(t *testing.T) {
	release := map[string]string{"a.yaml": ""}
	for name, test := range map[string]struct {
		own   map[string]string
		names []string
		want  string
	}{
		"nothing": {map[string]string{"README.md": ""}, []string{"web"},
			"it has no manifest: a manifest is a .yaml, .yml or .json file"},
		"a whole release": {map[string]string{"release-manifests/a.yaml": ""}, []string{"web"},
			"it has release-manifests/, so it is a whole release: name the folder of one component's manifests"},
		"an odd name": {map[string]string{"a.yaml": ""}, []string{"web", "we_b"},
			`"we_b" can't be the name of a component: write letters and digits, with single dashes between them, as in web-server`},
		"an empty name": {map[string]string{"a.yaml": ""}, []string{""},
			`one of its names is empty: write a name, or several with one comma between two, as in web,web-server`},
		"no name": {map[string]string{"a.yaml": ""}, nil, "a component needs a name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := component.Into(files(release), files(test.own), component.Options{Names: test.names})
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// references is the text of an image-references file of some name, with tags as
// NAME=PULLSPEC or NAME=PULLSPEC kubernetes=VERSION.
func references(name string, tags ...string) string {
	var list []string
	for _, tag := range tags {
		image, part, _ := strings.Cut(tag, " ")
		name, spec, _ := strings.Cut(image, "=")
		list = append(list,
			fmt.Sprintf(`{"name":%q,"annotations":{"io.openshift.build.versions":%q},"from":{"kind":"DockerImage","name":%q}}`, name, part, spec))
	}
	return fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":%q},"spec":{"tags":[%s]}}`, name, strings.Join(list, ","))
}

func TestPlaceholdersOfImagesAndVersions(t *testing.T) {
	release := map[string]string{
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.4.0"}`,
		"release-manifests/image-references": references("1.4.0",
			"web=registry.example/web@sha256:aaaa kubernetes=1.34.1",
			"api=registry.example/api@sha256:bbbb kubernetes=1.33.0"),
	}
	own := map[string]string{
		"image-references": references("x", "web=dev.example/web", "cli=dev.example/cli"),
		"01.yaml": "image: dev.example/web:latest\nversion: 0.0.1-snapshot\nkubernetes: " +
			"0.0.1-snapshot-kubernetes\nnot: 10.0.1-snapshots\nmachine: 0.0.1-snapshot-machine-os\n",
	}
	b := buildInto(t, release, own, "web")
	text, err := fs.ReadFile(b.FS, "release-manifests/0000_50_web_01.yaml")
	want := "image: registry.example/web@sha256:aaaa\nversion: 1.4.0\nkubernetes: 1.34.1\nnot: " +
		"10.0.1-snapshots\nmachine: 0.0.1-snapshot-machine-os\n"
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	var got []string
	for _, p := range b.Problems {
		file, isOwn := b.Own(p.File)
		got = append(got, fmt.Sprintf("%s %t %s: %s", file, isOwn, p.Cause, p.Message))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		`01.yaml true Mislabelled: 0.0.1-snapshot-machine-os stands for the version of "machine-os", which the release does not declare, or declares twice`,
		`image-references true Suspicious: the release has no image "cli" yet, which dev.example/cli stands for: correct the name, unless the image is new`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// TestImagesWithoutPlaceholders are those of the release, whose build has put its images into its own manifests only.
func TestImagesWithoutPlaceholders(t *testing.T) {
	b := buildInto(t, map[string]string{
		"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.4.0"}`,
		"release-manifests/image-references": strings.Replace(references("1.4.0",
			"web=registry.example/web@sha256:aaaa"),
			`"name":"1.4.0"`, `"name":"1.4.0","creationTimestamp":"2026-01-01T00:00:00Z"`, 1),
	}, map[string]string{"01.yaml": "image: registry.example/web:1.5.0\nversion: 0.0.1-snapshot\n"}, "web")
	text, err := fs.ReadFile(b.FS, "release-manifests/0000_50_web_01.yaml")
	want := "image: registry.example/web@sha256:aaaa\nversion: 1.4.0\n"
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil || len(b.Problems) > 0 {
		t.Error(diff, err, b.Problems)
	}
}

func TestAnotherVersionIsBuilt(t *testing.T) {
	release := map[string]string{
		"release-manifests/release-metadata":    `{"kind":"cincinnati-metadata-v0","version":"1.4.0","previous":["1.3.0"]}`,
		"release-manifests/image-references":    references("1.4.0"),
		"release-manifests/0000_50_web_01.yaml": configMap("web"),
	}
	b, err := component.Into(files(release),
		files(map[string]string{
			"image-references": references(""),
			"01.yaml":          configMap("web") + "data: {v: 0.0.1-snapshot}\n",
		}),
		component.Options{Names: []string{"web"}, Version: "1.5.0"})
	if err != nil {
		t.Fatal(err)
	}
	built, problems, err := payload.Load(t.Context(), b.FS, payload.Options{Version: "1.5.0"})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	version, _, _ := unstructured.NestedString(built.Manifests[0].Object().Object, "data", "v")
	if built.Version != "1.5.0" || version != "1.5.0" || !slices.Equal(built.Metadata.Previous, []string{"1.3.0"}) {
		t.Errorf("got version %s, with %v, previous versions %v", built.Version, version, built.Metadata.Previous)
	}
}

func TestNotesOnABuild(t *testing.T) {
	for name, test := range map[string]struct {
		release, own map[string]string
		names        []string
		want         []string
	}{
		"all is well": {
			map[string]string{"0000_50_web_01.yaml": configMap("a"), "0000_50_api_01.yaml": configMap("b")},
			map[string]string{"01.yaml": configMap("a"), "02.yaml": configMap("c")}, []string{"web"}, nil,
		},
		"a new one": {
			map[string]string{"0000_50_api_01.yaml": configMap("b")},
			map[string]string{"01.yaml": configMap("a")}, []string{"web"},
			[]string{"the release has no files of web yet: all its files are new"},
		},
		"another name": {
			map[string]string{
				"0000_50_shop_01.yaml": configMap("a"),
				"0000_50_shop_02.yaml": configMap("b"),
				"0000_50_shop_03.yaml": configMap("c"),
			},
			map[string]string{"01.yaml": configMap("a"), "02.yaml": configMap("b")}, []string{"web"},
			[]string{
				"the release has no files of web yet: all its files are new",
				"other files of the release have 2 objects of the component too, such as ConfigMap shop/a in " +
					"0000_50_shop_01.yaml: if those files are the component's under another name, write --component " +
					"web,shop",
			},
		},
		"files called for something else": {
			map[string]string{"0000_50_shop_01.yaml": configMap("a"), "0000_50_shop_02.yaml": configMap("b")},
			map[string]string{"0000_50_shop_01.yaml": configMap("a")}, []string{"web"},
			[]string{"some files are called like those of shop, of which the release keeps 1 file more, such as " +
				"0000_50_shop_02.yaml: if all these files are the component's, write --component web,shop"},
		},
		"a file of another component": {
			map[string]string{"0000_50_web_01.yaml": configMap("a"), "0000_50_api_01.yaml": configMap("b")},
			map[string]string{"01.yaml": configMap("a"), "0000_50_api_01.yaml": configMap("c")}, []string{"web"},
			[]string{"0000_50_api_01.yaml of the release gives way to the component's file of that name: if it is " +
				"another component's, rename yours, and else write --component web,api"},
		},
		"an object that was in both already": {
			map[string]string{"0000_50_web_01.yaml": configMap("a"), "0000_50_api_01.yaml": configMap("a")},
			map[string]string{"01.yaml": configMap("a")}, []string{"web"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := buildInto(t, test.release, test.own, test.names...)
			read := func(files fs.FS) *payload.Payload {
				p, _, err := payload.Parse(t.Context(), files, payload.Options{})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			if diff := cmp.Diff(test.want, b.Notes(read(files(test.release)), read(b.FS))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNameOfAFileInItsComponent(t *testing.T) {
	release := map[string]string{"a.yaml": "", "0000_50_web_02.yaml": ""}
	for _, test := range []struct {
		own        map[string]string
		file, want string
	}{
		{map[string]string{"01.yaml": ""}, "release-manifests/0000_50_web_02.yaml", "02.yaml"},
		{map[string]string{"01.yaml": ""}, "0000_60_web_02.yaml", "0000_60_web_02.yaml"},
		{map[string]string{"0000_50_web_01.yaml": ""}, "0000_50_web_02.yaml", "0000_50_web_02.yaml"},
		{map[string]string{"0000_50_web_01.yaml": "", "x.yaml": ""}, "0000_50_web_02.yaml", "02.yaml"},
		{map[string]string{"manifests/01.yaml": ""}, "0000_50_web_02.yaml", "manifests/02.yaml"},
	} {
		b := buildInto(t, release, test.own, "web")
		if got := b.Home(test.file); got != test.want {
			t.Errorf("%s is called %s, want %s", test.file, got, test.want)
		}
		if !b.Had("manifests/0000_50_web_07.yaml") || !b.Had("0000_50_web_02.yaml") || b.Had("0000_50_api_02.yaml") {
			t.Error("the component does not know its earlier files")
		}
	}
}
