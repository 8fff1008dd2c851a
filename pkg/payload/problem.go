package payload

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/internal/text/yamltext"
)

// Integrity is the reason of the error of a payload with problems.
const Integrity = "UpdatePayloadIntegrity"

// A Cause is a kind of problem.
type Cause string

// The causes of problems.
const (
	Unreadable   Cause = "Unreadable"   // the file or document can't be read at all
	Unidentified Cause = "Unidentified" // it is not a manifest: apiVersion, kind or name is missing
	Malformed    Cause = "Malformed"    // it can be read, but is not a valid manifest
	WrongDelete  Cause = "WrongDelete"  // the delete annotation has an invalid value
	Duplicate    Cause = "Duplicate"    // the payload has the same object twice
	Mislabelled  Cause = "Mislabelled"  // release-metadata or image-references are wrong

	InvalidHooks   Cause = "InvalidHooks"   // hooks of a Deployment can't be read, or have unknown fields
	HookContainer  Cause = "HookContainer"  // a hook names a container that the template does not have
	HookStrategy   Cause = "HookStrategy"   // a hook is for a strategy that the Deployment does not have
	MisplacedHooks Cause = "MisplacedHooks" // hooks are in a place where they are not read
)

// The causes of warnings: the payload can be applied, but is probably not as its author intended.
const (
	RepeatedKey  Cause = "RepeatedKey"  // a mapping has a key twice
	UnknownField Cause = "UnknownField" // Kubernetes' own kind has no such field
	WrongType    Cause = "WrongType"    // the API server will refuse the value of a field
	Unrecognized Cause = "Unrecognized" // it is left out because of an unknown name
	Imageless    Cause = "Imageless"    // a template has the release's own image, which is not known yet
	Placeholder  Cause = "Placeholder"  // a component's placeholder for an image was not replaced
	Suspicious   Cause = "Suspicious"   // anything else

	UnknownAnnotation Cause = "UnknownAnnotation" // Runlevel's domain has no such annotation

	HookVolume      Cause = "HookVolume"      // a hook runs without a volume that the template does not have
	HookIneffective Cause = "HookIneffective" // a setting of a hook has no effect
)

// A Problem is a problem of a payload, with its position.
type Problem struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`     // 0 for the whole file
	Column   int    `json:"column,omitempty"`   // counted in characters, from 1; 0 if unknown
	Document int    `json:"document,omitempty"` // counted from 1; 0 for the whole file
	Object   string `json:"object,omitempty"`   // "Deployment my-namespace/my-name"
	Cause    Cause  `json:"cause"`
	Message  string `json:"message"`
	// IsNewer is set if a newer Runlevel may accept the manifest or setting: see Options.LeaveOutNewer.
	IsNewer bool `json:"-"`
}

// IsWarning reports whether the payload can be applied nevertheless.
func (p Problem) IsWarning() bool {
	switch p.Cause {
	case RepeatedKey, UnknownField, WrongType, Unrecognized, Imageless, Placeholder, Suspicious, HookVolume,
		HookIneffective, UnknownAnnotation:
		return true
	default:
		return false
	}
}

// Anywhere returns the problem without its position, to compare it.
func (p Problem) Anywhere() Problem {
	p.Line, p.Column, p.Message = 0, 0, WithoutLines(p.Message)
	return p
}

// lineOfFile matches the line of another file in a message.
var lineOfFile = regexp.MustCompile(`:\d+`)

// WithoutLines returns a message without line numbers, so that it stays the same when lines are added to another
// file.
func WithoutLines(message string) string { return lineOfFile.ReplaceAllString(message, "") }

// String returns the problem in one line: file, line, document, object, message.
func (p Problem) String() string {
	var text strings.Builder
	text.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&text, ":%d", p.Line)
	}
	text.WriteString(": ")
	if p.Document > 0 {
		fmt.Fprintf(&text, "document %d: ", p.Document)
	}
	if p.Object != "" {
		text.WriteString(p.Object + ": ")
	}
	return printable.Line(text.String() + strings.ReplaceAll(p.Message, "\n", " "))
}

// Problems is an error with one line for each problem.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// AreNewer reports whether a newer Runlevel may accept what has the problems.
func (p Problems) AreNewer() bool {
	return !slices.ContainsFunc(p, func(problem Problem) bool { return !problem.IsNewer })
}

// Refuse returns an error with the problems that are not warnings, and
// nil if there are none.
func Refuse(problems []Problem) error {
	var refused Problems
	for _, problem := range problems {
		if !problem.IsWarning() {
			refused = append(refused, problem)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return &reason.Error{Reason: Integrity, Err: refused}
}

// byPlace orders problems by their positions.
func byPlace(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Document, b.Document))
}

// limitProblems sorts the problems, and keeps no more than the limit.
func (r *reader) limitProblems() {
	slices.SortStableFunc(r.problems, byPlace)
	listed := min(len(r.problems), maxProblems)
	rest := r.problems[listed:]
	if count := len(rest) + r.unlisted; count > 0 {
		more := Problem{
			File:    ".",
			Cause:   Suspicious,
			Message: fmt.Sprintf("%d more problems are not listed: correct these first", count),
		}
		if slices.ContainsFunc(rest, func(p Problem) bool { return !p.IsWarning() }) {
			more.Cause = Malformed
		}
		r.problems = append(r.problems[:listed:listed], more)
	}
}

// Places are the positions of a manifest's fields in its file.
type Places struct {
	*yamltext.FieldPlaces
	text chunk
}

// newPlaces parses a text once more, which is only done to report a problem.
func newPlaces(text chunk) *Places {
	root, err := yamltext.Parse(text.text)
	if err != nil {
		root = nil
	}
	return &Places{FieldPlaces: yamltext.NewPlaces(root), text: text}
}

// At returns the line and column of a field in the file: see yamltext.FieldPlaces.
func (p *Places) At(path ...string) (line, column int) {
	line, column = p.FieldPlaces.At(path...)
	return p.text.fileLine(line), column
}

// AreComments returns for offsets of # in a document's text whether a comment
// begins there: text behind such a # is in no value. The document is decoded
// twice, however many offsets there are.
func AreComments(text []byte, offsets []int) []bool {
	found := make([]bool, len(offsets))
	if _, err := decode(text); err != nil {
		return found
	}
	mark := "runlevel-mark"
	for bytes.Contains(text, []byte(mark)) {
		mark += "-"
	}
	var marked bytes.Buffer
	last := 0
	for i, offset := range offsets {
		marked.Write(text[last : offset+1])
		fmt.Fprintf(&marked, "%s%d;", mark, i)
		last = offset + 1
	}
	marked.Write(text[last:])
	with, err := decode(marked.Bytes())
	if err != nil {
		return found
	}
	for i := range found {
		found[i] = true
	}
	strike := func(text string) {
		for {
			_, rest, more := strings.Cut(text, mark)
			if !more {
				return
			}
			number, behind, _ := strings.Cut(rest, ";")
			if i, err := strconv.Atoi(number); err == nil && i < len(found) {
				found[i] = false
			}
			text = behind
		}
	}
	eachText(with.value, strike)
	return found
}

// eachText calls a function with all keys and values that are strings.
func eachText(value any, call func(string)) {
	switch value := value.(type) {
	case string:
		call(value)
	case []any:
		for _, item := range value {
			eachText(item, call)
		}
	case map[string]any:
		for key, item := range value {
			call(key)
			eachText(item, call)
		}
	}
}
