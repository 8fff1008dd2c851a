package crd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxShown limits the length of a shown value, in characters.
const maxShown = 60

// hiddenText replaces the value of a password.
const hiddenText = "(hidden)"

// A report collects the problems of an object, and converts them to messages.
type report struct {
	object  map[string]any // as the caller passed it
	secrets []string       // values that must not be shown
	found   []Problem
}

// unknown adds fields that the schema doesn't have.
func (r *report) unknown(names ...string) {
	for _, name := range names {
		p := locate(r.object, name)
		if len(p.keys) == 0 { // an empty key, or only dots
			p = place{keys: []string{name}, name: join("", name, false)}
		}
		r.found = append(r.found, Problem{
			Path: p.keys, Unknown: true,
			Message: oneLine(p.name + ": is not in the schema: the API server drops it"),
		})
	}
}

// add adds errors of fields.
func (r *report) add(found ...*field.Error) {
	for _, err := range found {
		name, detail := fieldOf(err)
		p := locate(r.object, name)
		message := r.sentence(err, detail, p)
		if p.name != "" {
			message = p.name + ": " + message
		}
		r.found = append(r.found,
			Problem{Path: p.keys, Message: oneLine(message), Missing: err.Type == field.ErrorTypeRequired})
	}
}

// root is the API server's libraries' name of the whole object.
const root = "<nil>"

// fieldOf returns the field and the detail of an error. Some libraries name the field
// only in the detail.
func fieldOf(err *field.Error) (name, detail string) {
	detail = err.Detail
	if before, after, ok := strings.Cut(detail, " in body "); ok && !strings.ContainsAny(before, " \n") {
		detail = after
	}
	if err.Field != root {
		return err.Field, detail
	}
	if quoted, rest, ok := strings.Cut(strings.TrimPrefix(detail, `"`), `" must validate `); ok {
		return quoted, "must validate " + rest
	}
	if text, name, ok := strings.Cut(strings.TrimPrefix(detail, "Checked value "), ") in "); ok {
		return name, text + ")"
	}
	return "", detail
}

// addRules adds errors of CEL rules. They have a type where other errors have a value,
// and their messages may contain any value of the object. Rules over our cost limit,
// but within the API server's, are reported as not checked.
func (r *report) addRules(broken field.ErrorList, isTooDear bool) {
	if isTooDear {
		r.found = append(r.found,
			Problem{Message: "its CEL rules were not checked: with those of the other custom resources they " +
				"cost too much"})
		return
	}
	for _, err := range broken {
		shown := *err
		shown.BadValue = nil
		if slices.ContainsFunc(r.secrets, func(secret string) bool { return strings.Contains(err.Detail, secret) }) {
			shown.Detail = "breaks a rule whose message would show a password"
		}
		r.add(&shown)
	}
}

// problems returns the problems, in the order of the object's fields. Validators go
// through mappings in any order and report some errors twice.
func (r *report) problems() []Problem {
	slices.SortStableFunc(r.found, func(a, b Problem) int {
		if order := slices.CompareFunc(a.Path, b.Path, compareKeys); order != 0 {
			return order
		}
		return strings.Compare(a.Message, b.Message)
	})
	return slices.CompactFunc(r.found, func(a, b Problem) bool {
		return a.Message == b.Message && slices.Equal(a.Path, b.Path)
	})
}

func compareKeys(a, b string) int {
	first, errA := strconv.Atoi(a)
	second, errB := strconv.Atoi(b)
	if errA == nil && errB == nil && first != second {
		return first - second
	}
	return strings.Compare(a, b)
}

// sentence returns the message of an error.
func (r *report) sentence(err *field.Error, detail string, p place) string {
	value := r.value(err)
	switch err.Type {
	case field.ErrorTypeRequired:
		return textAfter("is required", detail)
	case field.ErrorTypeDuplicate:
		return textAfter(value+" is there twice", detail)
	case field.ErrorTypeForbidden:
		return textAfter("is not allowed", detail)
	case field.ErrorTypeNotSupported:
		if allowed, ok := strings.CutPrefix(detail, "supported values: "); ok {
			return value + " is none of " + allowed
		}
		return textAfter(value+" is not supported", detail)
	case field.ErrorTypeTooLong, field.ErrorTypeTooMany:
		return detail // the error has no value, or a meaningless one
	case field.ErrorTypeTypeInvalid:
		return r.wrongType(err, detail, p)
	}
	switch {
	case err.Field == root:
		return detail
	case value == "" || detail == "":
		return value + detail
	case strings.HasPrefix(detail, "must ") || strings.HasPrefix(detail, "should "):
		return value + " " + detail
	default:
		return value + ": " + detail
	}
}

func textAfter(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

// wrongType returns the type that a field should have. The error holds the actual type,
// or the value if only its format is wrong.
func (r *report) wrongType(err *field.Error, detail string, p place) string {
	text, _ := err.BadValue.(string)
	wanted := strings.ReplaceAll(strings.TrimSuffix(detail, fmt.Sprintf(": %q", text)), "integer,string",
		"integer or string")
	if p.value == text || text != "" && jsonType(text) == "" {
		return r.show(text) + " " + wanted
	}
	if actual := jsonType(text); actual != "" {
		return wanted + ", not " + actual
	}
	return wanted
}

// jsonType returns the JSON type of a word, which may be Go's name of the type; "" if it is none.
func jsonType(word string) string {
	switch word {
	case "object", "array", "string", "integer", "number", "boolean", "null":
		return word
	case "int", "int32", "int64":
		return "integer"
	case "float64":
		return "number"
	case "bool":
		return "boolean"
	default:
		return ""
	}
}

// value returns the value of an error as text, "" if it does not help.
func (r *report) value(err *field.Error) string {
	switch value := err.BadValue.(type) {
	case string, bool, int, int32, int64, float64:
		return r.show(value)
	case map[string]any, []any:
		if err.Type == field.ErrorTypeDuplicate {
			return r.show(value)
		}
	case *string:
		if value != nil {
			return r.show(*value)
		}
	}
	return ""
}

func (r *report) show(value any) string { return show(r.maskPasswords(value)) }

// maskPasswords returns a value without passwords.
func (r *report) maskPasswords(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, item := range value {
			fields[key] = r.maskPasswords(item)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = r.maskPasswords(item)
		}
		return items
	}
	if slices.Contains(r.secrets, fmt.Sprint(value)) {
		return hiddenValue{}
	}
	return value
}

// A hiddenValue is printed as hiddenText.
type hiddenValue struct{}

func (hiddenValue) String() string { return hiddenText }

// MarshalJSON hides a value within other values, too.
func (hiddenValue) MarshalJSON() ([]byte, error) { return json.Marshal(hiddenText) }

// show returns a value as JSON, shortened if it is long.
func show(value any) string {
	switch value := value.(type) {
	case nil:
		return "nothing"
	case hiddenValue:
		return value.String()
	case string:
		return strconv.Quote(printable.Shorten(value, maxShown))
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("a %T", value)
	}
	return printable.Shorten(string(encoded), maxShown)
}

// oneLine joins lines, without CEL's excerpts of expressions and unprintable
// characters.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "|") {
			lines = append(lines, line)
		}
	}
	return printable.Line(strings.ReplaceAll(strings.Join(lines, "; "), "ERROR: <input>:", "at "))
}
