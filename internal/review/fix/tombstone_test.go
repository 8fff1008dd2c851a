package fix_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/fix"
)

const grave = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  annotations:\n    " + deleteKey + ": \"true\"\n  name: gone\n"

func TestATombstoneIsAppended(t *testing.T) {
	const one = head + "# end\n"
	const object, inJSON = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`,
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"` + deleteKey + `": "true"}}}` + "\n"
	for name, test := range map[string]struct {
		file      string
		text      string // "" if there is no file
		tombstone string
		want      string // "" if it is refused
		why       string
	}{
		"a new file":            {"b.yaml", "", grave, grave, ""},
		"behind another":        {"a.yaml", one, grave, one + "---\n" + grave, ""},
		"without a line break":  {"a.yaml", head + "data: {}", grave, head + "data: {}\n---\n" + grave, ""},
		"behind a separator":    {"a.yaml", one + "---\n\n", grave, one + "---\n\n" + grave, ""},
		"behind a commented":    {"a.yaml", one + "--- # x", grave, one + "--- # x\n" + grave, ""},
		"in a file of comments": {"a.yaml", "# x\n", grave, "# x\n---\n" + grave, ""},
		"with CRLF":             {"a.yaml", "a: b\r\n", grave, "a: b\r\n---\r\n" + strings.ReplaceAll(grave, "\n", "\r\n"), ""},
		"of two variants":       {"a.yaml", one, grave + "---\n" + grave, one + "---\n" + grave + "---\n" + grave, ""},
		"variants in JSON":      {"a.json", object, inJSON + inJSON, object + "\n" + inJSON + inJSON, ""},
		"one that is none":      {"a.yaml", one, grave + "---\n" + head, "", "this is no tombstone"},
		"a Namespace behind":    {"a.yaml", one, grave + "---\n" + strings.ReplaceAll(grave, "ConfigMap", "Namespace"), "", "deleting Namespace gone takes all that is in it along: write it by hand if that is meant"},
		"JSON":                  {"a.json", object, inJSON, object + "\n" + inJSON, ""},
		"a text that goes on":   {"a.yaml", head + "data:\n  a: |\n    b", grave, "", "a.yaml: it can't be read, or its last document would change with another behind it: add the tombstone by hand"},
		"a broken file":         {"a.yaml", "[", grave, "", "a.yaml: it can't be read, or its last document would change with another behind it: add the tombstone by hand"},
		"a template":            {"manifests/a.yaml", "# {{ .X }}\n" + head, grave, "", "manifests/a.yaml: it is a template, and its output is not known: fix it by hand"},
		"a Namespace":           {"b.yaml", "", strings.ReplaceAll(grave, "ConfigMap", "Namespace"), "", "deleting Namespace gone takes all that is in it along: write it by hand if that is meant"},
		"a claim":               {"b.yaml", "", strings.ReplaceAll(grave, "ConfigMap", "PersistentVolumeClaim"), "", "deleting PersistentVolumeClaim gone takes the data behind it along: write it by hand if that is meant"},
		"a volume":              {"b.yaml", "", strings.ReplaceAll(grave, "ConfigMap", "PersistentVolume"), "", "deleting PersistentVolume gone takes the data on it along: write it by hand if that is meant"},
		"a definition":          {"b.yaml", "", strings.ReplaceAll(grave, "v1\nkind: ConfigMap", "apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition"), "", "deleting CustomResourceDefinition gone takes all objects of its kind along: write it by hand if that is meant"},
		"another's Namespace":   {"b.yaml", "", strings.ReplaceAll(grave, "v1\nkind: ConfigMap", "shop.example/v1\nkind: Namespace"), strings.ReplaceAll(grave, "v1\nkind: ConfigMap", "shop.example/v1\nkind: Namespace"), ""},
		"no tombstone":          {"a.yaml", one, head, "", "this is no tombstone"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{"release-manifests/x": {}, "manifests/x": {}}
			if test.text != "" {
				files[test.file] = &fstest.MapFile{Data: []byte(test.text)}
			}
			patch := fix.New(files)
			checkPatch(t, patch, patch.Append(test.file, []byte(test.tombstone)), test.want, test.why)
		})
	}
}

func TestTwoTombstonesInANewFile(t *testing.T) {
	patch := fix.New(fstest.MapFS{})
	if err := patch.Append("a.yaml", []byte(grave)); err != nil {
		t.Fatal(err)
	}
	other := strings.ReplaceAll(grave, "gone", "went")
	checkPatch(t, patch, patch.Append("a.yaml", []byte(other)), grave+"---\n"+other, "")
	if c := patch.Changes()[0]; c.Path != "" || len(c.Fixed) != 2 || c.Fixed[1].Line != 8 {
		t.Errorf("the change is %+v", c)
	}
}

func TestEachTombstoneOfAnObjectIsReported(t *testing.T) {
	patch := fix.New(fstest.MapFS{"a.yaml": {Data: []byte(head)}})
	if err := patch.Append("a.yaml", []byte(grave+"---\n"+grave)); err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, fixed := range patch.Changes()[0].Fixed {
		lines = append(lines, fixed.Line)
	}
	begin := strings.Count(head, "\n") + 2
	if diff := cmp.Diff([]int{begin, begin + strings.Count(grave, "\n") + 1}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// checkPatch compares what has become of the only file, or why not.
func checkPatch(t *testing.T, patch *fix.Patch, err error, want, why string) {
	t.Helper()
	got, said := "", ""
	for _, c := range patch.Changes() {
		got += string(c.After)
	}
	if err != nil {
		said = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(why, said); diff != "" {
		t.Errorf("why not (-want +got):\n%s", diff)
	}
}

func TestAMisspeltKeyIsCorrected(t *testing.T) {
	const byHand = "a.yaml: an edit here would change something else too, because of an anchor, a merge key or a repeated key: fix it by hand"
	for name, test := range map[string]struct {
		key, text, want, why string
	}{
		"plain":             {"x/deleted", "x/deleted: \"true\" # y", deleteKey + ": \"true\" # y", ""},
		"quoted":            {"x/deleted ", "\"x/deleted \": 'true'", `"` + deleteKey + `": "true"`, ""},
		"in single quotes":  {"x/d'd", "'x/d''d': 'true'", `'` + deleteKey + `': "true"`, ""},
		"the value, too":    {"x/deleted", "x/deleted: \"True \"", deleteKey + ": \"true\"", ""},
		"false":             {"x/deleted", "x/deleted: \"false\"", "", `a.yaml: the value of "x/deleted" is not true, so it would not delete: fix it by hand, or drop it`},
		"there already":     {"x/deleted", "x/deleted: \"true\"\n    " + deleteKey + ": \"false\"", "", `a.yaml: there is release.openshift.io/delete already: drop "x/deleted" by hand`},
		"not there":         {"x/deletes", "x/deleted: \"true\"", "", `a.yaml: there is no annotation "x/deletes"`},
		"an anchor":         {"x/deleted", "x/deleted: &a \"true\"", "", byHand},
		"an anchored key":   {"x/deleted", "&a x/deleted: \"true\"", "", byHand},
		"twice":             {"x/deleted", "x/deleted: \"true\"\n    x/deleted: \"true\"", "", byHand},
		"merged":            {"x/deleted", "<<: {x/deleted: \"true\"}", "", byHand},
		"beside an anchor":  {"x/deleted", "<<: &a {b: c}\n    x/deleted: \"true\"\n  labels: *a", "", ""},
		"beside a nonsense": {"x/deleted", "x/deleted: \"true\"\n    a: 1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			around := func(annotation string) string {
				if annotation == "" {
					return ""
				}
				return head + "  annotations:\n    " + annotation + "\n---\n" + head
			}
			want := test.want
			if test.why == "" && want == "" {
				want = strings.ReplaceAll(test.text, "x/deleted", deleteKey)
			}
			patch := fix.New(fstest.MapFS{"a.yaml": {Data: []byte(around(test.text))}})
			checkPatch(t, patch, patch.Correct("a.yaml", 1, test.key), around(want), test.why)
		})
	}
	const shared = head + "  annotations: &all {x/deleted: \"true\"}\n  labels: *all\n"
	patch := fix.New(fstest.MapFS{"a.yaml": {Data: []byte(shared)}})
	checkPatch(t, patch, patch.Correct("a.yaml", 1, "x/deleted"), "", byHand)
	namespace := strings.ReplaceAll(head, "ConfigMap", "Namespace") + "  annotations:\n    x/deleted: \"true\"\n"
	patch = fix.New(fstest.MapFS{"a.yaml": {Data: []byte(namespace)}})
	checkPatch(t, patch, patch.Correct("a.yaml", 1, "x/deleted"), "", "a.yaml: deleting Namespace a takes all that is in it along: write it by hand if that is meant")
}
