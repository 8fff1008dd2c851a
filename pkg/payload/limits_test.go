package payload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/pkg/payload"
)

// thing is the beginning of a custom resource.
const thing = "apiVersion: example.com/v1\nkind: Thing\nmetadata:\n  name: a\n"

func TestADocumentIsBounded(t *testing.T) {
	const (
		mib    = 1 << 20
		values = "it has more than 250000 values, which is the limit for a document (an alias counts as what it " +
			"stands for)"
		written = "written out it has more than 8 MiB, which is the limit for a document (an alias counts as what " +
			"it stands for)"
		separated = `it has %d characters that separate values, such as "," and ":" and line breaks, and the limit for a document is 500000`
		nested    = "its values are nested more than 200 levels deep, which is the limit"
	)
	inJSON := func(spec string) string {
		return `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":` + spec + `}`
	}
	for name, test := range map[string]struct{ text, want string }{
		"aliases of a large text": {thing + "spec:\n- &a " + strings.Repeat("x", mib) + "\n" +
			strings.Repeat("- *a\n", 500), ":6: document 1: " + written},
		"aliases of aliases": {thing + "a: &a [1,2,3,4,5,6,7,8,9,0]\n" + laughs(8), ":10: document 1: " + values},
		"merges of a large mapping": {thing + "a: &a {" + strings.Repeat("k: v, ", 1000) + "}\nspec:\n" +
			strings.Repeat("- <<: *a\n", 200), ":7: document 1: " + values},
		"an alias of itself": {thing + "a: &a [*a]\n",
			`:1: document 1: a value that begins with "*" stands for an anchor that it is itself a part of: write the value instead`},
		"many keys": {thing + "spec:\n" + strings.Repeat("  k:\n", 130_000),
			":6: document 1: " + values},
		"many keys in JSON": {inJSON("[" + strings.Repeat("1,", 260_000) + "1]"), ":1: document 1: " + values},
		"many separators": {thing + "spec: [" + strings.Repeat("a,", 600_000) + "]\n",
			":1: document 1: " + fmt.Sprintf(separated, 600_011)},
		"many separators in JSON": {inJSON("[" + strings.Repeat("1,", 600_000) + "1]"),
			":1: document 1: " + fmt.Sprintf(separated, 600_011)},
		"a large text": {thing + "spec: " + strings.Repeat("x", 4*mib),
			":1: document 1: it has 4194369 bytes, and the limit for a document is 4 MiB: no API server takes an " +
				"object of that size"},
		"deep nesting": {thing + "spec: " + strings.Repeat("[", 201) + strings.Repeat("]", 201),
			":1: document 1: " + nested},
		"deep nesting in JSON": {inJSON(strings.Repeat("[", 201) + strings.Repeat("]", 201)),
			":1: document 1: " + nested},
		"deep and wide": {thing + "spec: " + strings.Repeat("{a: ", 190) + "[" + strings.Repeat("a,", 30_000) + "]" +
			strings.Repeat("}", 190), ":5: document 1: " + written},
		"an odd line break": {thing + "a: &a [1]\nb: *a # \u0085c: 1\n",
			`:6: document 1: this line has U+0085, U+2028, U+2029 or U+FEFF, which are not allowed in a document that may have aliases: write \n or a line break instead`},
		"many documents": {strings.Repeat("---\n", 60_000) + thing,
			": document 1: it has more than 20000 documents, which is the limit for a release"},
		"annotations": {thing + "  annotations:\n    a: " + strings.Repeat("x", 256<<10),
			":5: document 1: Thing a: the API server refuses its annotations: annotations size 262145 is larger than " +
				"limit 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := parse(t, files(t, map[string]string{"a.yaml": test.text}), payload.Options{})
			if diff := cmp.Diff([]string{"a.yaml" + test.want}, lines(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// laughs is lines of lists, each of ten aliases of the one before.
func laughs(levels int) string {
	var text strings.Builder
	for i := range levels {
		fmt.Fprintf(&text, "%c: &%c [%s]\n", 'b'+i, 'b'+i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 10), ","))
	}
	return text.String()
}

func TestLargeInputWithinTheLimits(t *testing.T) {
	for name, text := range map[string]string{
		"keys":     thing + "spec:\n" + keys(120_000),
		"numbers":  thing + "spec:\n" + strings.Repeat("- 0o7\n- 1.5\n", 50_000),
		"tags":     thing + "spec: [\"é\"," + strings.Repeat("!!str 1,", 100_000) + "]\n",
		"aliases":  thing + "a: &a [x]\nspec:\n" + strings.Repeat("- *a\n", 50_000),
		"a text":   thing + "spec: " + strings.Repeat("x", 4_000_000) + "\n",
		"comments": strings.Repeat("# x\n", 400_000) + thing,
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := parse(t, files(t, map[string]string{"a.yaml": text}), payload.Options{})
			if len(problems) > 0 || len(p.Manifests) != 1 {
				t.Error(lines(problems))
			}
		})
	}
}

func keys(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "  k%d: x\n", i)
	}
	return text.String()
}

func TestAReleaseIsBounded(t *testing.T) {
	many := func(count int, text func(int) string) map[string]string {
		files := map[string]string{}
		for i := range count {
			files[fmt.Sprintf("%03d.yaml", i)] = text(i)
		}
		return files
	}
	named := func(i int) string { return strings.Replace(thing, "name: a", fmt.Sprintf("name: a%d", i), 1) }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"documents": {many(3, func(int) string { return strings.Repeat("--- #\n", 20_000) }), "20000 documents"},
		"JSON":      {many(3, func(int) string { return strings.Repeat("{} ", 20_000) }), "20000 documents"},
		"values": {many(5, func(i int) string {
			return named(i) + "spec: [" + strings.Repeat("a,", 240_000) + "]\n"
		}), "1000000 values"},
		"separators": {many(5, func(i int) string { return named(i) + "spec: |\n" + strings.Repeat("  \n", 490_000) }),
			`2000000 characters that separate values, such as "," and ":" and line breaks`},
		"text": {many(10, func(i int) string { return named(i) + "spec: " + strings.Repeat("x", 4_000_000) }),
			"24 MiB when they are rendered and their aliases are written out"},
		"aliases": {many(5, func(i int) string {
			return named(i) + "spec:\n- &a " + strings.Repeat("x", 100_000) + strings.Repeat("\n- *a", 70)
		}), "24 MiB when they are rendered and their aliases are written out"},
	} {
		t.Run(name, func(t *testing.T) {
			p, problems := parse(t, files(t, test.files), payload.Options{})
			want := []string{".: its manifests have more than " + test.want +
				", which is the limit: is this one release?"}
			if diff := cmp.Diff(want, lines(problems)); diff != "" || len(p.Manifests) > 0 {
				t.Error(len(p.Manifests), diff)
			}
		})
	}
}

func TestImagesDoNotGrowAFileBeyondItsLimit(t *testing.T) {
	image := "registry.example/web@sha256:" + strings.Repeat("a", 900)
	_, problems := parse(t, files(t, map[string]string{
		"image-references": fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":"1.2.3"},"spec":{"tags":[{"name":"web","from":{"kind":"DockerImage","name":%q}}]}}`, image),
		"a.yaml":           thing + "spec: '" + strings.Repeat("registry.example/web:1 ", 40_000) + "'\n",
	}), payload.Options{})
	if diff := cmp.Diff([]string{
		"a.yaml: with the images of the release it has more than 32 MiB, which is the limit for a file",
	}, lines(problems)); diff != "" {
		t.Error(diff)
	}
}

func TestNoMoreThanSomeProblemsAreListed(t *testing.T) {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n" +
		strings.ReplaceAll(keys(20_000), "  k", "    k")
	text = strings.ReplaceAll(text, ": x", ": 1")
	_, problems := parse(t, files(t,
		map[string]string{"a.yaml": text, "b.yaml": configMap("b") + "data: {a: 1, b: 2, a: 3}\n"}), payload.Options{})
	if got := len(problems); got != 10_001 {
		t.Fatalf("%d problems", got)
	}
	const want = ".: 10003 more problems are not listed: correct these first"
	if last := problems[10_000]; last.String() != want || last.IsWarning() {
		t.Errorf("the last problem is %v, want %s", last, want)
	}
}
