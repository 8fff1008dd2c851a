package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxValueLength limits the shown characters of a value in a terminal.
const maxValueLength = 72

// A Difference is the change of a field: in a line, or in several.
type Difference struct {
	Path     string
	Old, New string   // values in one line
	Lines    []string // lines of a text that differ, with "-" or "+" in front
	IsCut    bool     // the values are longer
	Remark   string   // why the change needs attention; "" if it does not
}

// differenceOf formats a change of an object of some kind, with so many characters of a value.
func differenceOf(kind string, change plan.FieldChange, most int) Difference {
	hasRoom := most > maxValueLength // for many lines, too
	d := Difference{Path: printable.Line(pathOf(kind, change.Path))}
	switch {
	case change.Refused:
		d.Remark = "the API server refuses it"
	case len(change.Overwrites) > 0:
		d.Remark = "overwrites " + strings.Join(change.Overwrites, ", ")
	}
	old, isText := change.Old.(string)
	next, isTextToo := change.New.(string)
	isPlain := isText && isTextToo // needs no quotes: a number can't be mistaken for a text
	if (isPlain || hasRoom) && strings.Contains(old+next, "\n") {
		var before, after string
		d.Old, before = linesOf(change.Old)
		d.New, after = linesOf(change.New)
		d.Lines = lineDiff(before, after)
		if !hasRoom {
			d.Lines = firstLines(d.Lines)
		}
		return d
	}
	d.Old, d.New = text(change.Old, isPlain), text(change.New, isPlain)
	if utf8.RuneCountInString(d.Old) > most || utf8.RuneCountInString(d.New) > most {
		d.Old, d.New = cutAroundDifference(d.Old, d.New, most)
		d.IsCut = true
	}
	return d
}

// definition is the kind whose paths are long.
const definition = "CustomResourceDefinition"

// pathOf formats a path. A path in a schema is formatted as the field that the schema describes, and
// the path in its schema: "version v1: spec.size: maximum".
func pathOf(kind string, path fields.Path) string {
	// spec.versions[name=v1].schema.openAPIV3Schema and the fields below
	if kind != definition || len(path) < 6 || path[1].Key != "versions" || path[2].Value == "" ||
		path[4].Key != "openAPIV3Schema" {
		return path.String()
	}
	result, below := "version "+path[2].Value+": ", path[5:]
	field := ""
	for len(below) > 0 {
		step, length := "", 1
		switch key := below[0].Key; {
		case key == "properties" && len(below) > 1:
			step, length = "."+below[1].Key, 2
		case key == "items":
			step = "[*]"
		case key == "additionalProperties":
			step = ".*"
		}
		if step == "" {
			break
		}
		field, below = field+step, below[length:]
	}
	result += strings.TrimPrefix(field, ".")
	if len(below) > 0 && field != "" {
		result += ": "
	}
	return result + below.String()
}

// none stands for a field that does not exist.
const none = "(none)"

// text formats a value in a line.
func text(value any, isPlain bool) string {
	written, isText := value.(string)
	switch {
	case value == nil:
		return none
	case isText && isPlain && written != "" && strings.TrimSpace(written) == written, fields.IsMask(value):
		return printable.Line(written)
	case isText && strings.Contains(written, "\n"):
		return countLines(written)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprintf("(%T)", value) // never for values that come from YAML
	}
	return printable.Line(strings.TrimSpace(out.String()))
}

// linesOf returns how many lines a text has, and the text with its last line ended. Of any other value it
// returns the value in a line, and no text.
func linesOf(value any) (summary, lines string) {
	written, isText := value.(string)
	if !isText {
		return text(value, false), ""
	}
	return countLines(written), written + "\n"
}

func countLines(text string) string {
	return printable.Count(strings.Count(strings.TrimSuffix(text, "\n"), "\n")+1, "line")
}

// cutAroundDifference shortens two values to the text around their first difference.
func cutAroundDifference(old, next string, most int) (string, string) {
	a, b := []rune(old), []rune(next)
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	return cut(a, same, most), cut(b, same, most)
}

// context counts the equal characters that are shown in front of a difference.
const context = 20

func cut(text []rune, difference, most int) string {
	if len(text) <= most {
		return string(text)
	}
	start := max(0, min(difference-context, len(text)-most))
	end := min(len(text), start+most)
	shown := string(text[start:end])
	if start > 0 {
		shown = "…" + shown
	}
	if end < len(text) {
		shown += "…"
	}
	return shown
}

// maxLines limits the shown lines of a text.
const maxLines = 12

// firstLines returns the first lines of a difference, each shortened, and how many more there are.
func firstLines(lines []string) []string {
	more := len(lines) - maxLines
	lines = lines[:min(len(lines), maxLines)]
	for i, line := range lines {
		lines[i] = line[:len("- ")] + cut([]rune(line[len("- "):]), 0, maxValueLength)
	}
	if more > 0 {
		lines = append(lines, "and "+printable.Count(more, "more line"))
	}
	return lines
}

// lineDiff returns the lines that two texts do not share, with "-" or "+" in front.
func lineDiff(before, after string) []string {
	const header = 3 // lines of a unified diff before its first hunk
	var lines []string
	for i, line := range strings.Split(string(diff.Diff("", []byte(before), "", []byte(after))), "\n") {
		if i >= header && (strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+")) {
			lines = append(lines, line[:1]+" "+printable.Line(line[1:]))
		}
	}
	return lines
}
