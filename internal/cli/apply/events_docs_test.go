package apply

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/cluster/ownership"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/precondition"
)

// TestDocumentedEvents compares the events in docs/apply.md with those in the stream of
// "runlevel apply -o json".
func TestDocumentedEvents(t *testing.T) {
	page := eventsPage(t)
	types, losses := constants(t, "../../../pkg/apply", "EventType"), fieldsOf(ownership.Conflict{})
	var shown, ofEvents []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (.*) \\|$").FindAllStringSubmatch(
		between(page, "| type |", "\n\n"), -1,
	) {
		shown = append(shown, row[1])
		if slices.Contains(types, row[1]) {
			ofEvents = append(ofEvents, quoted(row[2])...)
		}
	}
	same(t, "types", append(types, "start", "summary", "tests"), shown)
	same(t, "fields of events", slices.Concat(fieldsOf(apply.Event{}), fieldsOf(kinds.ID{}), losses),
		append(ofEvents, "time", "type"))
	same(t, "fields of start", fieldsOf(StartEvent{}),
		append(quoted(between(page, "| `start` |", "\n")), "time", "type"))

	lists := between(page, "| list |", "\n\n")
	var names []string
	for name, item := range map[string]any{
		"failures": failure{}, "waits": apply.Wait{}, "notDone": undoneStep{}, "deletes": state.PendingDelete{},
		"orphans": orphan{}, "adopted": adoption{}, "overruled": overwrite{}, "warnings": apply.Warning{},
		"gate": precondition.Finding{},
	} {
		names = append(names, name)
		fields := fieldsOf(item)
		if slices.Contains(fields, "lost") {
			fields = append(fields, losses...)
		}
		same(t, "fields of "+name, fields,
			quoted(strings.ReplaceAll(between(lists, "| `"+name+"` |", "\n"), "`runlevel deletes -o json`", "")))
	}
	same(t, "fields of the summary", fieldsOf(Summary{}),
		slices.Concat(quoted(between(page, "| `summary` |", "\n")), names, []string{"time", "type"}))

	same(t, "actions", constants(t, "../../../pkg/apply/object", "Action"),
		quoted(between(page, "An `action` is", "\n\n")))
	for _, reason := range []string{precondition.ReasonFailed, lock.ReasonHeld} {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("docs/apply.md has no reason %s", reason)
		}
	}
}

// eventsPage is the part of the documentation for programs.
func eventsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/apply.md")
	if err != nil {
		t.Fatal(err)
	}
	return between(string(page), "### Events for programs", "\n## ")
}

// between is the text after the first begin, up to the next end.
func between(text, begin, end string) string {
	_, text, _ = strings.Cut(text, begin)
	text, _, _ = strings.Cut(text, end)
	return text
}

// quoted are the words that a text shows as code.
func quoted(text string) []string {
	var words []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, match[1])
	}
	return words
}

// same compares two sets of words.
func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(set(want), set(got)); diff != "" {
		t.Errorf("the %s of docs/apply.md: - is missing, + is wrong:\n%s", what, diff)
	}
}

func set(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return slices.Compact(words)
}

// fieldsOf are those of a struct in JSON.
func fieldsOf(value any) []string {
	var names []string
	for field := range reflect.TypeOf(value).Fields() {
		if !field.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// constants are the values of a package's constants of a type.
func constants(t *testing.T, folder, typeName string) []string {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var values []string
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(node ast.Node) bool {
			spec, isValue := node.(*ast.ValueSpec)
			if !isValue || len(spec.Values) != 1 {
				return true
			}
			kind, _ := spec.Type.(*ast.Ident)
			literal, isLiteral := spec.Values[0].(*ast.BasicLit)
			if kind == nil || kind.Name != typeName || !isLiteral {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
			return true
		})
	}
	return values
}
