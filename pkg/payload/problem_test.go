package payload_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// TestBadManifests has one line for each thing that people write.
func TestBadManifests(t *testing.T) {
	laughs := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for i, name := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} {
		before := string("abcdefgh"[i])
		laughs += name + ": &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+before+", ", 9), ", ") + "]\n"
	}
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a conflict": {"kind: ConfigMap\n<<<<<<< HEAD\na: b\n",
			[]string{"f.yaml:2: document 1: a merge conflict begins here: resolve it, and remove its markers " +
				"\"<<<<<<<\", \"=======\" and \">>>>>>>\""}},
		"two colons": {"a: b: c\n",
			[]string{"f.yaml:1: document 1: a value has \": \" in it, or this line is indented too far: put the " +
				"value in quotes, or indent it as its neighbours"}},
		"broken YAML": {"kind: ConfigMap\nmetadata: [\n",
			[]string{"f.yaml:2: document 1: a value is missing, or a \"[\" or \"{\" is not closed: add it"}},
		"a tab": {"kind: ConfigMap\nmetadata:\n\tname: x\n",
			[]string{"f.yaml:3: document 1: this line begins with a tab: indent it with blanks"}},
		"invalid UTF-8": {"kind: ConfigMap\n# \xff\n",
			[]string{"f.yaml:2: document 1: this is not UTF-8 text: save the file as UTF-8"}},
		"billion laughs": {laughs,
			[]string{"f.yaml:6: document 1: it has more than 250000 values, which is the limit for a document (an " +
				"alias counts as what it stands for)"}},
		"a list": {"- a\n- b\n",
			[]string{
				"f.yaml:1: document 1: a manifest is a mapping with apiVersion, kind and metadata; this is a list",
			}},
		"a text": {"hello\n", []string{
			"f.yaml:1: document 1: a manifest is a mapping with apiVersion, kind and metadata; this is a text",
		}},
		"text behind ---": {configMap("a") + "--- kind: ConfigMap\n",
			[]string{`f.yaml:6: document 2: only a comment may follow "---": put the rest on the next line`}},
		"more behind ...": {configMap("a") + "...\n" + configMap("b"),
			[]string{`f.yaml:6: document 1: there is more after the end of the document: put "---" on a line of its own between two documents`}},
		"the second document": {configMap("a") + "---\nkind: [\n---\n" + configMap("c"), []string{
			"f.yaml:7: document 2: a value is missing, or a \"[\" or \"{\" is not closed: add it"}},
		"nothing required": {"metadata: {}\n", []string{
			"f.yaml:1: document 1: apiVersion is missing", "f.yaml:1: document 1: kind is missing",
			"f.yaml:1: document 1: metadata.name is missing"}},
		"an empty name": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ''\n",
			[]string{"f.yaml:4: document 1: ConfigMap: metadata.name is empty"}},
		"a number": {"apiVersion: 1\nkind: ConfigMap\nmetadata:\n  name: 12\n",
			[]string{"f.yaml:1: document 1: ConfigMap: apiVersion is the number 1, not a string: write it in quotes",
				"f.yaml:4: document 1: ConfigMap: metadata.name is the number 12, not a string: write it in quotes"}},
		"a bad version": {"apiVersion: a/b/c\nkind: ConfigMap\nmetadata: {name: a}\n",
			[]string{
				`f.yaml:1: document 1: ConfigMap a: apiVersion is "a/b/c", which is neither VERSION nor GROUP/VERSION`,
			}},
		"a List": {"apiVersion: v1\nkind: List\nitems: []\n",
			[]string{`f.yaml:2: document 1: List: a List is not a manifest, and annotations of its items mean nothing: write them as documents of their own, with "---" between them`}},
		"metadata no map": {"apiVersion: v1\nkind: ConfigMap\nmetadata: x\n",
			[]string{"f.yaml:3: document 1: ConfigMap: metadata is a text, not a mapping"}},

		"delete unquoted": {configMap("a", "release.openshift.io/delete: true"), []string{
			`f.yaml:7: document 1: ConfigMap here/a: annotation release.openshift.io/delete is the boolean true, not a string: write it in quotes, as "true"`}},
		"delete in YAML 1.1": {configMap("a", "release.openshift.io/delete: yes"), []string{
			`f.yaml:7: document 1: ConfigMap here/a: annotation release.openshift.io/delete is the boolean true, not a string: write it in quotes, as "true"`}},
		"delete something": {configMap("a", `x: "y"`, `release.openshift.io/delete: "True"`), []string{
			`f.yaml:8: document 1: ConfigMap here/a: annotation release.openshift.io/delete is "True", and only "true" deletes: write "true", or drop the annotation`}},
		"delete empty": {configMap("a", "release.openshift.io/delete:"), []string{
			`f.yaml:7: document 1: ConfigMap here/a: annotation release.openshift.io/delete is empty, not a string: write it in quotes, as ""`}},
		"delete beside a number": {configMap("a", "replicas: 3", `release.openshift.io/delete: "true"`), []string{
			`f.yaml:7: document 1: ConfigMap here/a: annotation replicas is the number 3, not a string: write it in quotes, as "3"`}},
		"a label": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    on: off\n", []string{
			`f.yaml:5: document 1: ConfigMap a: label true is the boolean false, not a string: write it in quotes, as "false"`}},
		"annotations no map": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: [x]\n", []string{
			"f.yaml:5: document 1: ConfigMap a: metadata.annotations is a list, not a mapping"}},

		"a key twice": {configMap("a") + "data:\n  k: v\n  k: w\n",
			[]string{`f.yaml:8: document 1: ConfigMap here/a: the key "k" occurs twice in the same mapping: the last one counts`}},
		"an unknown field": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  template:\n    " +
			"spec:\n      containers:\n      - name: a\n        imagePullPolice: Always\n",
			[]string{`f.yaml:9: document 1: Deployment a: unknown field "spec.template.spec.containers[0].imagePullPolice": is it misspelt?`}},
		"a field that does not fit": {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec:\n  " +
			"replicas: three\n", []string{
			"f.yaml:5: document 1: Deployment a: the API server refuses it: spec.replicas can't be of type string",
		}},
		"a control character": {"apiVersion: v1\nkind: \x1b\n",
			[]string{"f.yaml:2: document 1: control characters are not allowed"}},
		"a name with escapes": {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \"a\\e[31m\\n\"\n  labels: {a: 1}\n", []string{
			`f.yaml:5: document 1: ConfigMap a\x1b[31m\n: label a is the number 1, not a string: write it in quotes, as "1"`}},
		"a key twice, with a tab": {configMap("a") + "data:\n  k: \"\t\"\n  k: w\n",
			[]string{`f.yaml:8: document 1: ConfigMap here/a: the key "k" occurs twice in the same mapping: the last one counts`}},
		"a byte order mark": {"\xef\xbb\xbf" + configMap("a"), nil},
		"Windows lines":     {strings.ReplaceAll(configMap("a")+"---\n"+configMap("b"), "\n", "\r\n"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, files(t, map[string]string{"f.yaml": test.text}), payload.Options{})
			if diff := cmp.Diff(test.want, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBadJSON(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"with a byte order mark": {"\xef\xbb\xbf" + `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
			nil},
		"that ends early": {"{\n\"kind\": \"ConfigMap\",\n", []string{"f.json:2: document 1: the JSON ends too early"}},
		"with a comma too many": {"{\n\"kind\": \"ConfigMap\",\n}\n{}",
			[]string{"f.json:3: document 1: invalid character '}' looking for beginning of object key string"}},
		"with a comment behind": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}} # one` + "\n# two\n",
			nil},
		"with YAML behind": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` +
			"\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {a: 1}}}\n",
			[]string{
				`f.json:2: document 2: ConfigMap b: label a is the number 1, not a string: write it in quotes, as "1"`,
			}},
		"a problem in the second": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n\n{\n" +
			`"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b",` + "\n" + `"labels":{"a":1}}}`,
			[]string{
				`f.json:5: document 2: ConfigMap b: label a is the number 1, not a string: write it in quotes, as "1"`,
			}},
		"a second one, broken": {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n{]",
			[]string{"f.json:2: document 2: invalid character ']' looking for beginning of object key string"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, files(t, map[string]string{"f.json": test.text}), payload.Options{})
			if diff := cmp.Diff(test.want, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAnUnquotedDeleteIsNeverCreated: annotations must be strings. The API machinery finds no annotations at all here,
// so nothing marks the object.
func TestAnUnquotedDeleteIsNeverCreated(t *testing.T) {
	broken := files(t, map[string]string{
		"0000_10_a_a.yaml": configMap("fine"),
		"0000_10_a_b.yaml": configMap("doomed", "release.openshift.io/delete: true"),
	})
	read, _ := parse(t, broken, payload.Options{})
	if m := read.Manifests[1]; m.Object().GetAnnotations() != nil || m.IsTombstone() {
		t.Fatal("the API machinery has learnt to read annotations that are no strings: is this still needed?")
	}
	if p, _, err := payload.Load(t.Context(), broken, payload.Options{}); err == nil || p != nil {
		t.Errorf("the payload was loaded, with %v", names(p))
	}
}

func TestBadMetadata(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"of another version": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.4"}`,
		},
			[]string{`release-manifests/image-references: this is for version "1.2.3", but release-metadata has version "1.2.4": both must come from the same release`}},
		"with a v in front": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"v1.2.3"}`,
		}, []string{
			`release-manifests/image-references: this is for version "1.2.3", but release-metadata has version "v1.2.3": both must come from the same release`,
			`release-manifests/release-metadata: the version "v1.2.3" is not a semantic version such as 1.2.3`}},
		"images of two documents": {map[string]string{
			"release-manifests/image-references": "kind: ImageStream\n---\nfoo: [",
		},
			[]string{
				"release-manifests/image-references: this is not an ImageStream: it has 2 documents, and must have one",
			}},
		"images of another form": {map[string]string{"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":{}}}`},
			[]string{
				"release-manifests/image-references: this is not an ImageStream: spec.tags can't be of type object",
			}},
		"invalid JSON": {map[string]string{"release-manifests/release-metadata": "{\n\"kind\": x}"},
			[]string{"release-manifests/release-metadata:2: this is not the JSON of a release's metadata: invalid " +
				"character 'x' looking for beginning of value"}},
		"of another kind": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"other","version":"1.2.3"}`,
		},
			[]string{`release-manifests/release-metadata: its kind is "other": write "cincinnati-metadata-v0"`}},
		"without a version": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0"}`,
		},
			[]string{"release-manifests/release-metadata: the version is missing"}},
		"no semantic version": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"4.21"}`,
		}, []string{
			`release-manifests/image-references: this is for version "1.2.3", but release-metadata has version "4.21": both must come from the same release`,
			`release-manifests/release-metadata: the version "4.21" is not a semantic version such as 1.2.3`}},
		"with an unknown field": {map[string]string{
			"release-manifests/release-metadata": `{"kind":"cincinnati-metadata-v0","version":"1.2.3","versoin":"x"}`,
		},
			[]string{`release-manifests/release-metadata: unknown field "versoin": is it misspelt?`}},
		"no image stream": {map[string]string{
			"release-manifests/image-references": `{"kind":"ConfigMap","apiVersion":"v1"}`,
		},
			[]string{`release-manifests/image-references: this is "ConfigMap" of "v1": it must be ImageStream of image.openshift.io/v1`}},
		"broken images": {map[string]string{"release-manifests/image-references": "{"},
			[]string{"release-manifests/image-references:1: this is not an ImageStream: a value is missing, or a \"[\" " +
				"or \"{\" is not closed: add it"}},
		"nothing": {map[string]string{"release-manifests/release-metadata": ""},
			[]string{"release-manifests/release-metadata:1: this is not the JSON of a release's metadata: unexpected " +
				"end of JSON input"}},
		"an image without a repository": {map[string]string{"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":":1"}}]}}`},
			[]string{`release-manifests/image-references: the tag "a" has from.name ":1", which is not an image`}},
		"an image twice": {map[string]string{"release-manifests/image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":"x"}},{"name":"a","from":{"kind":"DockerImage","name":"x"}}]}}`},
			[]string{`release-manifests/image-references: the tag "a" occurs twice`}},
	} {
		t.Run(name, func(t *testing.T) {
			test.files["release-manifests/a.yaml"] = configMap("a")
			_, problems := parse(t, release(t, test.files), payload.Options{})
			if diff := cmp.Diff(test.want, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRequestedVersion(t *testing.T) {
	_, problems := parse(t, release(t, map[string]string{"release-manifests/a.yaml": configMap("a")}),
		payload.Options{Version: "2.0.0"})
	if diff := cmp.Diff([]string{
		`release-manifests/release-metadata: the release is version "1.2.3", and "2.0.0" was asked for`,
	}, lines(problems)); diff != "" {
		t.Error(diff)
	}
	_, problems = parse(t, files(t, map[string]string{
		"a.yaml":           configMap("a"),
		"image-references": `{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"}}`,
	}), payload.Options{Version: "2.0.0"})
	if diff := cmp.Diff([]string{`image-references: this is for version "1.2.3", and "2.0.0" was asked for`},
		lines(problems)); diff != "" {
		t.Error(diff)
	}
}

// TestManyProblems finds each one's line.
func TestManyProblems(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n"
	for i := range 9_000 {
		text += fmt.Sprintf("    l%05d: %d\n", i, i)
	}
	_, problems := parse(t, files(t, map[string]string{"f.yaml": text}), payload.Options{})
	if len(problems) != 9_000 || problems[8_999].Line != 9_005 {
		t.Errorf("%d problems, the last one in line %d", len(problems), problems[len(problems)-1].Line)
	}
}

// TestManyJSONDocuments would take minutes if lines were counted from the top each time.
func TestManyJSONDocuments(t *testing.T) {
	text := strings.Repeat("null ", 15_000) + "\n\n" + `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	p, problems := parse(t, files(t, map[string]string{"f.json": "{} " + text}), payload.Options{})
	if len(p.Manifests) != 1 || p.Manifests[0].Line != 3 {
		t.Error(names(p), lines(problems))
	}
}

func TestFoldersWithoutARelease(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"empty": {nil, []string{".: no manifests found: a manifest is a .yaml, .yml or .json file"}},
		"only empty files": {map[string]string{"a.yaml": "", "b.yaml": "# nothing\n---\nnull\n"},
			[]string{".: all files are empty"}},
		"something else": {map[string]string{"README.md": "x"},
			[]string{".: no manifests found: a manifest is a .yaml, .yml or .json file"}},
		"one level too far": {map[string]string{"manifests/a.yaml": configMap("a")},
			[]string{`.: no manifests found: a manifest is a .yaml, .yml or .json file; did you mean its folder "manifests"?`}},
		"without metadata": {map[string]string{"release-manifests/a.yaml": configMap("a")}, []string{
			"release-manifests/image-references: it is missing: a release needs it",
			"release-manifests/release-metadata: it is missing: a release needs it"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, files(t, test.files), payload.Options{})
			if diff := cmp.Diff(test.want, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnreadableFile is about errors of the file system.
func TestUnreadableFile(t *testing.T) {
	folder := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(folder, "a.yaml")); err != nil {
		t.Skip(err)
	}
	var files fs.FS = os.DirFS(folder)
	_, problems := parse(t, files, payload.Options{})
	if diff := cmp.Diff([]string{"a.yaml: no such file or directory"}, lines(problems)); diff != "" {
		t.Error(diff)
	}
}

// TestProblemWithoutItsPlace has an object twice, before and after a comment is written above the one
// and lines are put in front of the other.
func TestProblemWithoutItsPlace(t *testing.T) {
	problemIn := func(first, second string) payload.Problem {
		t.Helper()
		_, problems := parse(t, files(t, map[string]string{"a.yaml": first, "b.yaml": second}), payload.Options{})
		if len(problems) != 1 {
			t.Fatal(lines(problems))
		}
		return problems[0]
	}
	before, after := problemIn(configMap("a"), configMap("a")),
		problemIn("# one\n\n# more\n"+configMap("a"), "\n"+configMap("a"))
	if before == after || before.Anywhere() != after.Anywhere() {
		t.Errorf("these are not the same:\n%s\n%s", before, after)
	}
	if other := problemIn(configMap("b"), configMap("b")); other.Anywhere() == before.Anywhere() {
		t.Errorf("these are the same:\n%s\n%s", before, other)
	}
}
