package yamltext_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/text/yamltext"
)

func valuesOf(t *testing.T, text string) []string {
	t.Helper()
	spans, err := yamltext.Values([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, span := range spans {
		values = append(values, text[span.Start:span.End])
	}
	return values
}

func TestValuesAreFoundWithoutKeysAndComments(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"comments and keys": {"# a: b\nkey: value # and more\nother: [x, {y: z}] # end\n", []string{"value", "x", "z"}},
		"documents":         {"a: 1\n---\n# c\nb: two\n--- # d\nc: three", []string{"1", "two", "three"}},
		"quotes":            {`a: "x \" y" # "z"` + "\nb: 'it''s'\n", []string{`x \" y`, "it''s"}},
		"several lines":     {"a: one\n  two\n\n  three # four\nb: five\n", []string{"one\n  two\n\n  three", "five"}},
		"a literal":         {"a: |- # why\n  # text\n  two: 2\nb: x\n", []string{"  # text\n  two: 2", "x"}},
		"a folded text":     {"a: >\n    one\n    two\n\n\nb: x\n", []string{"    one\n    two", "x"}},
		"an indentation":    {"a: |2\n    one\n   two\nb: x\n", []string{"    one\n   two", "x"}},
		"anchors":           {"a: &one !!str 1\nb: *one\nc: &two\n  d: 2\n", []string{"1", "2"}},
		"other letters":     {"ä: ö # ü\nß: [é, è]\n", []string{"ö", "é", "è"}},
		"a mark":            {"\ufeffa: b\n", []string{"b"}},
		"windows":           {"a: b\r\nc: |\r\n  d\r\n  e\r\nf: g\r\n", []string{"b", "  d\r\n  e", "g"}},
		"JSON":              {"{\n\t\"a\": [\"b\", 1, null],\n\t\"c\": \"d\\n\"\n}", []string{"b", `d\n`}},
		"JSON alone": {`{"a\/": "\ud83d\ude00", "b" : "c\/d"} {"e": ["f"]}`,
			[]string{`\ud83d\ude00`, `c\/d`, "f"}},
		"nothing": {"a:\nb: \"\"\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, valuesOf(t, test.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValuesOfATextThatIsNotYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: b\nc: [\n": "not closed", "a: b\rc: d\r": "line breaks", "a: b\u2028c: d\n": "line breaks",
	} {
		_, err := yamltext.Values([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

// TestValuesOfManifests reads the examples of this repository, whose values can all be found.
func TestValuesOfManifests(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		valuesOf(t, string(text))
	}
}

// FuzzValues looks for values that overlap, or lead out of the text.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		"a: b # c\n---\nd: [\"e\", 'f''', {g: h}]\n", "a: |2\n    b\n  c\nd: >-\n  e\n\n  f\n",
		"a: &b !!str c\nd: *b\n? e\n: f\n",
		"\ufeff\"a\": \"b\\\"\"\r\n", "- a\n- - b\n  - c: d\n", "%YAML 1.1\n---\na: b\n...\n", "a: \"b\n  c\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		spans, err := yamltext.Values(text)
		if err != nil {
			return
		}
		last := 0
		for _, span := range spans {
			if span.Start < last || span.End < span.Start || span.End > len(text) {
				t.Fatalf("%v after %d in %q", span, last, text)
			}
			last = span.End
		}
	})
}
