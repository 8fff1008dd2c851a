package fix_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/review/fix"
)

const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"

const deleteKey = "release.openshift.io/delete"

// fixed is what comes of a file, and what is left, if one rule finds something in some
// documents of it.
func fixed(t *testing.T, name, text, rule string, documents ...int) (string, []string) {
	t.Helper()
	patch := fix.New(fstest.MapFS{name: {Data: []byte(text)}, "release-manifests/x": {}})
	var requests []fix.Request
	for _, document := range documents {
		requests = append(requests, fix.Request{Rule: rule, Path: name, Document: document})
	}
	patch.Fix(requests)
	var left []string
	for _, l := range patch.Left() {
		left = append(left, l.Why)
	}
	for _, c := range patch.Changes() {
		text = string(c.After)
	}
	return text, left
}

// check compares what came of a text with what was wanted of it, where "" is no change,
// and looks that nothing comes of it the second time.
func check(t *testing.T, rule, text, want string, isLeft bool) {
	t.Helper()
	if want == "" {
		want = text
	}
	got, left := fixed(t, "a.yaml", text, rule, 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fixed (-want +got):\n%s", diff)
	}
	if isLeft != (len(left) > 0) {
		t.Errorf("left is %q", left)
	}
	if again, _ := fixed(t, "a.yaml", got, rule, 1); again != got {
		t.Errorf("the second time it is %q", again)
	}
}

func TestTheDeleteAnnotationIsSpelled(t *testing.T) {
	key := deleteKey + ": "
	for name, test := range map[string]struct {
		text, want string // how the annotation is written
		isLeft     bool
	}{
		"true":                  {key + "true", key + `"true"`, false},
		"large":                 {key + "True # now", key + `"true" # now`, false},
		"larger":                {key + "TRUE", key + `"true"`, false},
		"yes":                   {key + "yes", key + `"true"`, false},
		"y":                     {key + "y", key + `"true"`, false},
		"on":                    {key + "On", key + `"true"`, false},
		"mixed letters":         {key + "tRuE", key + `"true"`, false},
		"quoted":                {key + `"True"`, key + `"true"`, false},
		"with blanks":           {key + `"  true "`, key + `"true"`, false},
		"with an escape":        {key + `"\ttru\x65\n" # "`, key + `"true" # "`, false},
		"in single quotes":      {key + `' true'`, key + `"true"`, false},
		"over lines":            {key + "\"\n    true\n    \"", key + `"true"`, false},
		"on the next line":      {key + "\n      Yes", key + "\n      \"true\"", false},
		"a quoted key":          {`"` + deleteKey + `" : true`, `"` + deleteKey + `" : "true"`, false},
		"a key with escapes":    {`"release.openshift.io\x2fdelete": true`, `"release.openshift.io\x2fdelete": "true"`, false},
		"as it must be":         {key + `"true"`, "", false},
		"in single ones":        {key + `'true'`, "", false},
		"false":                 {key + "false", "", false},
		"no":                    {key + "no", "", false},
		"false in quotes":       {key + `"false"`, "", false},
		"yes in quotes":         {key + `"yes"`, "", false},
		"nothing":               {key + `""`, "", false},
		"a one":                 {key + "1", "", false},
		"a one in quotes":       {key + `"1"`, "", false},
		"null":                  {key + "null", "", false},
		"no value":              {key, "", false},
		"a list":                {key + "[true]", "", false},
		"a mapping":             {key + "{true: true}", "", false},
		"two words":             {key + "true true", "", false},
		"a block":               {key + "|\n      True", "", true},
		"a tag":                 {key + "!!bool true", "", true},
		"an anchor":             {key + "&yes true", "", true},
		"an alias":              {"x: &yes \"True\"\n    " + key + "*yes", "", true},
		"twice":                 {key + "\"false\"\n    " + key + "True", "", true},
		"twice, the last false": {key + "True\n    " + key + "false", "", false},
		"merged":                {"<<: {" + deleteKey + ": True}", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			around := func(annotation string) string {
				if annotation == "" {
					return ""
				}
				return "# first\n" + head + "  annotations: # all\n    " + annotation + "\n    after: \"1\"\n"
			}
			check(t, fix.DeleteValue, around(test.text), around(test.want), test.isLeft)
		})
	}
}

func TestValuesArePutInQuotes(t *testing.T) {
	for name, test := range map[string]struct {
		text, want string
		isLeft     bool
	}{
		"as they are written": {
			"  annotations:\n    a: 1.10\n    b: 0644 # mode\n    c: yes\n    d:   1_000\n    e: -1e3\n    f: 0x1F\n    g: .5\n",
			"  annotations:\n    a: \"1.10\"\n    b: \"0644\" # mode\n    c: \"yes\"\n    d:   \"1_000\"\n    e: \"-1e3\"\n    f: \"0x1F\"\n    g: \".5\"\n", false},
		"labels":                 {"  labels:\n    a: off\n", "  labels:\n    a: \"off\"\n", false},
		"a flow mapping":         {"  labels: {a: 1,b : 2 , \"c\":3}\n", "  labels: {a: \"1\",b : \"2\" , \"c\":\"3\"}\n", false},
		"all in one flow":        {"  annotations: {a: 1, b: [1], c: }\n", "  annotations: {a: \"1\", b: [1], c: }\n", false},
		"letters of many bytes":  {"  annotations: {ä: ö, ü€𝄞: 7, k: 8}\n", "  annotations: {ä: ö, ü€𝄞: \"7\", k: \"8\"}\n", false},
		"an explicit key":        {"  annotations:\n    ? a\n    : 1\n", "  annotations:\n    ? a\n    : \"1\"\n", false},
		"null and nothing":       {"  annotations:\n    a: null\n    b:\n    c: ~\n", "", false},
		"lists and mappings":     {"  annotations:\n    a: [1]\n    b: {c: 1}\n    c: |\n      1\n", "", false},
		"the delete annotation":  {"  annotations:\n    " + deleteKey + ": true\n    a: 1\n", "  annotations:\n    " + deleteKey + ": true\n    a: \"1\"\n", false},
		"a tag":                  {"  annotations:\n    a: !!int 1\n", "", true},
		"an anchor":              {"  annotations:\n    a: &one 1\n", "", true},
		"an alias":               {"  x: &one 1\n  annotations:\n    a: *one\n", "", true},
		"an anchored mapping":    {"  annotations: &all\n    a: 1\n  labels: *all\n", "", true},
		"the same, not used":     {"  annotations: &all\n    a: 1\n", "  annotations: &all\n    a: \"1\"\n", false},
		"a merge":                {"  annotations:\n    <<: {a: 1}\n", "", true},
		"a merge beside":         {"  annotations:\n    <<: {b: x}\n    a: 1\n", "  annotations:\n    <<: {b: x}\n    a: \"1\"\n", false},
		"a key twice":            {"  annotations:\n    a: 1\n    a: 2\n", "", true},
		"the mapping twice":      {"  annotations:\n    a: x\n  annotations:\n    a: 2\n", "", true},
		"another key twice":      {"  annotations:\n    b: x\n    b: w\n    a: 2\n", "  annotations:\n    b: x\n    b: w\n    a: \"2\"\n", false},
		"a key that is no text":  {"  annotations:\n    1: 2\n", "  annotations:\n    1: \"2\"\n", false},
		"odd line breaks":        {"  annotations:\n    a: 1\n    b: \u2028\n", "", true},
		"a carriage return":      {"  annotations:\n    a: 1\r    b: 2\n", "", true},
		"in a list of no import": {"  annotations: [a: 1]\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			if test.want != "" {
				want = head + test.want
			}
			check(t, fix.Malformed, head+test.text, want, test.isLeft)
		})
	}
}

func TestOtherFilesAndDocuments(t *testing.T) {
	const one = head + "  annotations: {a: 1}\n"
	quoted := strings.ReplaceAll(one, "1}", `"1"}`)
	crlf := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"a": 1}}}`
	inQuotes := strings.ReplaceAll(object, `: 1}`, `: "1"}`)
	for name, test := range map[string]struct {
		file, text string
		documents  []int
		want       string
	}{
		"only what is asked for":    {"a.yaml", one + "---\n" + one + "---\n" + one, []int{2}, one + "---\n" + quoted + "---\n" + one},
		"several":                   {"a.yaml", "# x\n---\n---\n" + one + "--- # y\n# z\n" + one, []int{1, 2}, "# x\n---\n---\n" + quoted + "--- # y\n# z\n" + quoted},
		"beside a broken one":       {"a.yaml", "[\n---\n" + one, []int{2}, "[\n---\n" + quoted},
		"a byte order mark":         {"a.yaml", "\xef\xbb\xbf" + one + "---\n" + one, []int{1, 2}, "\xef\xbb\xbf" + quoted + "---\n" + quoted},
		"other line breaks":         {"a.yaml", crlf(one + "---\n" + one), []int{1, 2}, crlf(quoted + "---\n" + quoted)},
		"no such document":          {"a.yaml", one, []int{2}, one},
		"JSON":                      {"a.json", object + "\n" + object, []int{2}, object + "\n" + inQuotes},
		"JSON with tabs":            {"a.json", "{\n\t" + object[1:], []int{1}, "{\n\t" + inQuotes[1:]},
		"JSON and YAML":             {"a.yaml", object + "\n---\n" + one, []int{1, 2}, inQuotes + "\n---\n" + quoted},
		"a template":                {"manifests/a.yaml", one + "# {{ .ReleaseImage }}\n", []int{1}, one + "# {{ .ReleaseImage }}\n"},
		"a template without braces": {"manifests/a.yaml", one, []int{1}, quoted},
		"braces that are a text":    {"release-manifests/a.yaml", one + "# {{ x }}\n", []int{1}, quoted + "# {{ x }}\n"},
		"no text":                   {"a.yaml", one + "\xff", []int{1}, one + "\xff"},
		"what can't be cut":         {"a.yaml", one + "--- x\n" + one, []int{1}, one + "--- x\n" + one},
	} {
		t.Run(name, func(t *testing.T) {
			got, left := fixed(t, test.file, test.text, fix.Malformed, test.documents...)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("fixed (-want +got):\n%s", diff)
			}
			if isLeft := got == test.text && test.documents[0] < 2; isLeft != (len(left) == 1) {
				t.Errorf("left is %q", left)
			}
		})
	}
}

func TestTheLastLineEnds(t *testing.T) {
	for name, test := range map[string]struct {
		text, want string
		isLeft     bool
	}{
		"so":                 {head + "data: {a: b}", head + "data: {a: b}\n", false},
		"one line":           {"{apiVersion: v1}", "{apiVersion: v1}\n", false},
		"with CRLF":          {"a: b\r\nc: d", "a: b\r\nc: d\r\n", false},
		"a comment":          {head + "# end", head + "# end\n", false},
		"blanks":             {head + "  ", head + "  \n", false},
		"a separator":        {head + "---", head + "---\n", false},
		"it ends":            {head, "", false},
		"empty":              {"", "", false},
		"a text":             {head + "data:\n  a: |\n    b", "", true},
		"a folded one":       {head + "data:\n  a: >\n    b", "", true},
		"one that is cut":    {head + "data:\n  a: |-\n    b", head + "data:\n  a: |-\n    b\n", false},
		"what can't be read": {head + "[", "", true},
		"JSON":               {`{"a": 1}`, `{"a": 1}` + "\n", false},
	} {
		t.Run(name, func(t *testing.T) { check(t, fix.FinalNewline, test.text, test.want, test.isLeft) })
	}
}

func TestAFileIsRenamed(t *testing.T) {
	files := fstest.MapFS{"0000_5_a_b.yaml": {Data: []byte(head)}, "m/0000_7_a_b.yaml": {Data: []byte("a: b")}, "m/0000_08_A_b.yaml": {}, "m/0000_8_a_b.yaml": {}}
	patch := fix.New(files)
	isChanged := patch.Fix([]fix.Request{
		{Rule: fix.LevelWidth, Path: "0000_5_a_b.yaml", Name: "0000_05_a_b.yaml"},
		{Rule: fix.LevelWidth, Path: "m/0000_7_a_b.yaml", Name: "0000_07_a_b.yaml"},
		{Rule: fix.FinalNewline, Path: "m/0000_7_a_b.yaml"},
		{Rule: fix.LevelWidth, Path: "m/0000_8_a_b.yaml", Name: "0000_08_a_b.yaml"},
		{Rule: fix.LevelWidth, Path: "m/0000_08_A_b.yaml", Name: "../0000_09_a_b.yaml"},
		{Rule: fix.LevelWidth, Path: "m/0000_08_A_b.yaml"},
	})
	if !isChanged {
		t.Error("nothing is said to be changed")
	}
	var got []string
	for _, c := range patch.Changes() {
		got = append(got, c.Path+" "+c.NewPath+" "+string(c.After))
	}
	want := []string{"0000_5_a_b.yaml 0000_05_a_b.yaml " + head, "m/0000_7_a_b.yaml m/0000_07_a_b.yaml a: b\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	left := []fix.Unfixed{{Path: "m/0000_8_a_b.yaml", Why: "it can't be called 0000_08_a_b.yaml: there is such a file already"}}
	if diff := cmp.Diff(left, patch.Left()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	var names []string
	entries, err := fs.ReadDir(patch.FS(), "m")
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{"0000_07_a_b.yaml", "0000_08_A_b.yaml", "0000_8_a_b.yaml"}, names); diff != "" || err != nil {
		t.Errorf("the folder as it will be, %v (-want +got):\n%s", err, diff)
	}
	if err := fstest.TestFS(patch.FS(), "0000_05_a_b.yaml", "m/0000_07_a_b.yaml"); err != nil {
		t.Error(err)
	}
	if _, err := fs.Stat(patch.FS(), "m/0000_7_a_b.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("under its old name there is still something: %v", err)
	}
}
