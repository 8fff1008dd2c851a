package payload

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// peculiar are documents whose value people are surprised by.
var peculiar = []string{
	"a: yes\nb: on\nc: Off\nd: n\ne: y\nf: NO\ng: true\nh: False\ni: yesterday\nj: 'yes'\n",
	"a: 0644\nb: 0o644\nc: 0x1F\nd: 0b101\ne: -0b11\nf: 1_000\ng: +5\nh: -0\ni: 08\nj: 00\n",
	"a: 1.0\nb: 1e3\nc: .5\nd: 5.\ne: -1.5e-3\nf: 1e400\ng: 1.2.3\nh: 9007199254740993\ni: 18446744073709551615\nj: " +
		"9223372036854775808\n",
	"a: 2001-01-01\nb: 2001-01-01T00:00:00Z\nc: 12:30:45\nd: 1:20\n",
	"a: 10m\nb: 50Mi\nc: 1h30m\nd: 2Ti\ne: 100k\nf: -1M\ng: 12:30m\nh: 0x1Fs\ni: +1k\nj: .5m\nk: 2001-01-01s\nl: 1e3m\n",
	"a: ~\nb: null\nc:\nd: NULL\ne: 'null'\nf: nil\n",
	"a: .inf\n", "a: .nan\n", "a: .\n", "a: +\n", "a: -x\n", "a: <<\n", "a: =\n",
	"base: &b {x: 1, y: 2}\nm:\n  <<: *b\n  y: 3\nn:\n  y: 3\n  <<: *b\n",
	"a: &x [1, 2]\nb: *x\n", "a: &a [*a]\n", "a: *none\n",
	"1: a\ntrue: b\n1.5: c\n'2': d\n2001-01-01: e\n", "null: a\n", "[a]: b\n", "{a: b}: c\n", "? a\n: b\n",
	"a: 1\na: 2\nb: {c: 1, c: 2}\n",
	"a: !!str 1\nb: !!int '1'\nc: !!float 1\nd: !!binary aGVsbG8=\ne: !!binary /w==\nf: !mine x\ng: !!set {a, b}\n",
	"a: !!int x\n", "a: ! 1\n", "!!map {a: 1}\n",
	"a: |\n  text\n  more\nb: >\n  folded\n  text\nc: |-\n  x\nd: |+\n  x\n\n", "a: \"\\x41\\u00e9\\n\"\nb: 'it''s'\n",
	"- a\n- {b: c}\n", "just text\n", "12\n", "# nothing\n", "", "{}", "[]", "...\n", "%YAML 1.1\n",
	"{a: b, c: [d, e,]}\n", "a: b: c\n", "a:\n\tb: c\n", "\"a\": 1\n'b': 2\n",
	"a: b #c\nd: 'e' # f\n#g\n", "a: {\n  b: c\n}\n", "a: x\n y\n  z\n", "\xef\xbb\xbfa: 1\n", "a: \"b\nc\"\n",
	"a: - b\n", "a: ? b\n", "a: @b\n", "a: `b\n", "key: [a, b]: c\n", "a: 'b\n",
	"\ufeff{a: !!bool 'true'}\n", "\"y*ay: 1\n\u2028    b\"\n", "\"a: 1\n\u0085  b\": c\n",
	"é: !!str 1\nü: {é: !!bool 'true'}\n",
	"a: ! 1\rb: !!str 2\r", "a: b\rc: ! 1\r", "a: 1\r\nb: ! 2\r\n",
}

// compare decodes a text as we do and as Kubernetes does.
func compare(t *testing.T, text []byte) {
	t.Helper()
	ours, err := decode(text)
	var syntax *yamltext.TextError
	if errors.As(err, &syntax) && strings.HasPrefix(syntax.Message, "there is more after the end") {
		return // Kubernetes drops it without a word
	}
	if errors.As(err, &syntax) && (strings.Contains(syntax.Message, "limit") || syntax.Message == oddBreakMessage) {
		return // Kubernetes has other limits
	}
	var theirs any
	for range 100 { // keys such as 1 and "1" are the same in JSON: either may win
		theirs = nil
		theirErr := utilyaml.Unmarshal(text, &theirs)
		if (err == nil) != (theirErr == nil) {
			t.Fatalf("%q: our error is %v, theirs %v", text, err, theirErr)
		}
		if err != nil || reflect.DeepEqual(ours.value, theirs) {
			return
		}
	}
	t.Fatalf("%q: %s", text, cmp.Diff(theirs, ours.value))
}

func TestYAMLReadsAsInKubernetes(t *testing.T) {
	for _, text := range peculiar {
		compare(t, []byte(text))
	}
}

func TestARealReleaseReadsAsInKubernetes(t *testing.T) {
	folder := os.Getenv("RUNLEVEL_TEST_RELEASE")
	if folder == "" {
		t.Skip("RUNLEVEL_TEST_RELEASE names no release")
	}
	documents := 0
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(os.DirFS(folder), path)
		if err != nil {
			return err
		}
		chunks, _ := split(text)
		for _, chunk := range chunks {
			compare(t, chunk.text)
			documents++
		}
		return nil
	})
	if err != nil || documents == 0 {
		t.Fatalf("compared %d documents: %v", documents, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range peculiar {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		chunks, err := split(text)
		if err != nil || len(chunks) != 1 {
			return
		}
		compare(t, chunks[0].text)
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range peculiar {
		f.Add([]byte(text), []byte("{{.ReleaseImage}}"), []byte(`{"kind":"cincinnati-metadata-v0","version":"1.2.3"}`))
	}
	f.Add([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}{}`), []byte("---\na: 1\n---\nb: 2"),
		[]byte("{}"))
	f.Fuzz(func(t *testing.T, manifest, template, metadata []byte) {
		files := memory{
			"release-manifests/0000_10_a_a.yaml": manifest, "manifests/0000_10_a_b.yaml": template,
			"release-manifests/release-metadata": metadata,
		}
		p, problems, err := Parse(t.Context(), files.open(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			if problem.File == "" || problem.Message == "" || strings.Contains(problem.String(), "\n") {
				t.Errorf("a problem is not one line: %q", problem)
			}
		}
		for _, m := range p.Manifests {
			if m.ID().Kind == "" || m.ID().Name == "" || m.Line < 1 {
				t.Errorf("%q gave %v at line %d", manifest, m.ID(), m.Line)
			}
		}
	})
}

func FuzzImageReferences(f *testing.F) {
	f.Add([]byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1"},"spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":"r.example/a@sha256:00"}}]}}`), []byte("image: r.example/a:1"))
	f.Add([]byte(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1"},"spec":{"tags":[{"name":"a","from":{"kind":"DockerImage","name":"r.example/a:1"}},{"name":"b","from":{"kind":"DockerImage","name":"r.example/a:1@sha256:00"}}]}}`),
		[]byte("r.example/a:1 'r.example/a:1:2' \"r.example/a@sha256:0a\" xr.example/a r.example/a-b "+
			"//r.example/a:x,r.example/a\tér.example/a@sha256:0 r.example/a@sha256:00:1"))
	f.Add([]byte("kind: ImageStream\napiVersion: image.openshift.io/v1\nspec: {tags: [{name: a, from: {kind: "+
		"DockerImage, name: ':'}}]}"), []byte("x"))
	f.Fuzz(func(t *testing.T, references, text []byte) {
		found, err := ParseReferences(references)
		if err != nil {
			return
		}
		s, _, err := substitutionOf(found.Images, nil)
		if err != nil {
			t.Fatal(err)
		}
		once, err := s.apply(text)
		if err != nil {
			t.Fatal(err)
		}
		if want := applyPattern(s, text); string(once) != want {
			t.Errorf("%q became %q, want %q", text, once, want)
		}
	})
}

// applyPattern replaces images by regular expressions. It takes time that grows with the number of images.
func applyPattern(s *substitution, text []byte) string {
	repositories := []string{`\x00`}
	for _, repository := range slices.Sorted(maps.Keys(s.targets)) {
		repositories = append(repositories, regexp.QuoteMeta(repository))
	}
	pattern := regexp.MustCompile(fmt.Sprintf(`^((?:docker://)?(?:oci://)?)(%s)(?::\w[\w.-]{0,127})?(@.*)?$`,
		strings.Join(repositories, "|")))
	return regexp.MustCompile(`[\w.:/@+-]+`).ReplaceAllStringFunc(string(text), func(word string) string {
		found := pattern.FindStringSubmatch(word)
		if found == nil || !strings.HasSuffix(s.targets[found[2]], found[3]) {
			return word
		}
		return found[1] + s.targets[found[2]]
	})
}
