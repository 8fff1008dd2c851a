package ready

import (
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A live object is read without a type: what is missing, or not what it should be, is as
// good as not there yet.
type live map[string]any

// number is a whole number, or the given one where there is none.
func (o live) number(fallback int64, path ...string) int64 {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	switch number := value.(type) {
	case int64:
		return number
	case int:
		return int64(number)
	case float64: // as JSON has it unless asked for more
		return int64(number)
	default:
		return fallback
	}
}

func (o live) text(path ...string) string {
	text, _, _ := unstructured.NestedString(o, path...)
	return text
}

func (o live) flag(path ...string) bool {
	flag, _, _ := unstructured.NestedBool(o, path...)
	return flag
}

// list is a list of mappings.
func (o live) list(path ...string) []live {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	items, _ := value.([]any)
	var found []live
	for _, item := range items {
		if fields, isMapping := item.(map[string]any); isMapping {
			found = append(found, fields)
		}
	}
	return found
}

// A condition is one of an object's status, without anything if it is not there.
type condition struct{ status, reason, message string }

func (o live) condition(kind string) condition {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == kind {
			return condition{status: c.text("status"), reason: c.text("reason"), message: c.text("message")}
		}
	}
	return condition{}
}

func (c condition) isTrue() bool  { return c.status == "True" }
func (c condition) isFalse() bool { return c.status == "False" }

// why is what a condition says, or the given words if it says nothing.
func (c condition) why(otherwise string) string {
	switch {
	case c.message != "":
		return sentence(c.message)
	case c.reason != "":
		return c.reason
	default:
		return otherwise
	}
}

// fullWhy has the reason before the message.
func (c condition) fullWhy(otherwise string) string {
	if c.reason == "" || c.message == "" {
		return c.why(otherwise)
	}
	return c.reason + ": " + sentence(c.message)
}

// isUnseen says whether the controller has not looked at the object since it was changed,
// by what its status says. Many custom resources don't say.
func (o live) isUnseen() bool {
	generation := o.number(0, "metadata", "generation")
	return o.number(generation, "status", "observedGeneration") < generation
}

// longest is how much of a message is shown: more than the longest of Kubernetes' own,
// and little enough to be read in a list.
const longest = 601 // characters

// sentence makes a message of others one line of ours: in lower case, unless it begins
// with a name, and without a full stop.
func sentence(text string) string {
	text = printable.Line(printable.Shorten(strings.TrimRight(strings.Join(strings.Fields(text), " "), "."), longest))
	first, _, _ := strings.Cut(text, " ")
	for i, r := range first {
		if i > 0 && !unicode.IsLower(r) && !strings.ContainsRune("'-:,", r) {
			return text
		}
	}
	return strings.ToLower(first) + text[len(first):]
}
