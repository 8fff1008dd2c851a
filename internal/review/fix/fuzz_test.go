package fix_test

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/review/fix"
	"github.com/runlevel/runlevel/pkg/payload"
)

// FuzzMend asks for everything in every document of any text. Whatever it is: values
// change where they may and nowhere else, nothing is deleted whose annotation did not say
// true, comments stay, and a second time changes nothing.
func FuzzMend(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := payload.Documents(text)
		fixed := fixAll(text, len(before))
		if err != nil {
			if !bytes.Equal(fixed, text) {
				t.Errorf("what can't be read has become %q", fixed)
			}
			return
		}
		after, err := payload.Documents(fixed)
		if err != nil || len(after) != len(before) {
			t.Fatalf("%d documents have become %d, %v:\n%s", len(before), len(after), err, fixed)
		}
		for i := range before {
			if deletes(after[i].Value) && !saidTrue(annotationsOf(before[i].Value)[deleteKey]) {
				t.Errorf("document %d has become a tombstone:\n%s", i+1, fixed)
			}
			if !isFixed(before[i].Value, after[i].Value) {
				t.Errorf("document %d was\n%v\nand is\n%v", i+1, before[i].Value, after[i].Value)
			}
		}
		if bytes.Count(text, []byte("#")) != bytes.Count(fixed, []byte("#")) {
			t.Errorf("a comment is lost:\n%s", fixed)
		}
		if again := fixAll(fixed, len(after)); !bytes.Equal(again, fixed) {
			t.Errorf("the second time it has become\n%s", again)
		}
	})
}

// FuzzAppend appends a tombstone to any text: where that is done, all documents are what
// they were, and one more is there.
func FuzzAppend(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"a.yaml", "a.json"} {
			patch := fix.New(fstest.MapFS{name: {Data: text}})
			if err := patch.Append(name, []byte(grave)); err != nil {
				continue
			}
			before, _ := payload.Documents(text)
			after, err := payload.Documents(patch.Changes()[0].After)
			if err != nil || len(after) != len(before)+1 || !deletes(after[len(before)].Value) {
				t.Fatalf("%d documents have become %d, %v", len(before), len(after), err)
			}
			for i := range before {
				if !reflect.DeepEqual(before[i].Value, after[i].Value) {
					t.Errorf("document %d was\n%v\nand is\n%v", i+1, before[i].Value, after[i].Value)
				}
			}
		}
	})
}

// addSeeds adds the examples of all rules, and layouts that are none of theirs.
func addSeeds(f *testing.F) {
	pages, err := filepath.Glob("../lint/rules/*.txtar")
	if err != nil || len(pages) == 0 {
		f.Fatal("there are no pages of rules: ", err)
	}
	for _, page := range pages {
		archive, err := txtar.ParseFile(page)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if text := string(file.Data); strings.Contains(text, "delete") || strings.Contains(page, "malformed") {
				f.Add(file.Data)
			}
		}
	}
	for _, text := range []string{
		head + "  annotations: {" + deleteKey + ": True, a: 1}", head + "  annotations: &a\n    x: 0644\n  labels: *a\n",
		head + "  annotations:\r\n    <<: {a: yes}\r\n    b: on\r\n", `{"metadata": {"annotations": {"` + deleteKey + `": true}}} {"metadata": {"labels": {"a": 1}}}`,
		"\xef\xbb\xbf---\n? metadata\n: annotations: {a: !!int 1, b: ~}\n", head + "  labels:\n    a: |\n      yes", "%YAML 1.1\n---\nmetadata: {labels: {ü: 1.0}}\n...\n",
	} {
		f.Add([]byte(text))
	}
}

// fixAll fixes what can be fixed in so many documents.
func fixAll(text []byte, documents int) []byte {
	requests := []fix.Request{{Rule: fix.FinalNewline, Path: "a.yaml"}}
	for number := range documents {
		requests = append(requests, fix.Request{Rule: fix.DeleteValue, Path: "a.yaml", Document: number + 1}, fix.Request{Rule: fix.Malformed, Path: "a.yaml", Document: number + 1})
	}
	patch := fix.New(fstest.MapFS{"a.yaml": {Data: text}})
	patch.Fix(requests)
	for _, change := range patch.Changes() {
		return change.After
	}
	return text
}

// isFixed says whether a value is another, but for what may be fixed in it.
func isFixed(before, after any) bool {
	was, isMapping := before.(map[string]any)
	is, _ := after.(map[string]any)
	wasIn, hasMetadata := was["metadata"].(map[string]any)
	isIn, _ := is["metadata"].(map[string]any)
	if !isMapping || !hasMetadata {
		return reflect.DeepEqual(before, after)
	}
	for _, kind := range []string{"annotations", "labels"} {
		old, _ := wasIn[kind].(map[string]any)
		now, _ := isIn[kind].(map[string]any)
		if len(old) != len(now) {
			return false
		}
		for key := range old {
			if !isFixedValue(kind, key, old[key], now[key]) {
				return false
			}
		}
		if old != nil && now != nil {
			wasIn[kind], isIn[kind] = nil, nil
		}
	}
	return reflect.DeepEqual(was, is)
}

func isFixedValue(kind, key string, was, is any) bool {
	text, isText := is.(string)
	switch was.(type) {
	case bool, int64, float64:
		if isText && text != "" && (kind != "annotations" || key != deleteKey) {
			return true
		}
	}
	if kind == "annotations" && key == deleteKey && saidTrue(was) && is == "true" {
		return true
	}
	return reflect.DeepEqual(was, is)
}

func annotationsOf(value any) map[string]any {
	found, _, _ := unstructured.NestedMap(map[string]any{"": value}, "", "metadata", "annotations")
	return found
}

func deletes(value any) bool {
	fields, isMapping := value.(map[string]any)
	return isMapping && (&unstructured.Unstructured{Object: fields}).GetAnnotations()[deleteKey] == "true"
}

func saidTrue(value any) bool {
	text, isText := value.(string)
	return value == true || isText && strings.ToLower(strings.TrimSpace(text)) == "true"
}
