package payload

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// Integrity is the reason of a payload that can't be trusted to be whole.
const Integrity = "UpdatePayloadIntegrity"

// A Cause says what kind of problem it is.
type Cause string

// The causes of problems.
const (
	Unreadable   Cause = "Unreadable"   // the file or document can't be read at all
	Unidentified Cause = "Unidentified" // it is no manifest: it does not say which object is meant
	Malformed    Cause = "Malformed"    // it can be read, and is no valid manifest
	WrongDelete  Cause = "WrongDelete"  // the delete annotation has a value that means nothing
	Duplicate    Cause = "Duplicate"    // the payload has the same object twice
	Mislabelled  Cause = "Mislabelled"  // release-metadata or image-references are wrong

	InvalidHooks   Cause = "InvalidHooks"   // hooks of a Deployment can't be read, or hold what no hook has
	HookContainer  Cause = "HookContainer"  // a hook names a container that the template does not have
	HookStrategy   Cause = "HookStrategy"   // a hook is of a strategy that the Deployment does not have
	MisplacedHooks Cause = "MisplacedHooks" // hooks stand where none are read
)

// The causes of warnings: it can be applied, and is hardly what was meant.
const (
	RepeatedKey  Cause = "RepeatedKey"  // a mapping has a key twice
	UnknownField Cause = "UnknownField" // Kubernetes' own kind has no such field
	WrongType    Cause = "WrongType"    // the API server will refuse what a field holds
	Unrecognized Cause = "Unrecognized" // it is left out for an unknown name
	Imageless    Cause = "Imageless"    // a template has the release's own image, which is not known yet
	Placeholder  Cause = "Placeholder"  // a component's placeholder for an image has stayed
	Suspicious   Cause = "Suspicious"   // anything else

	HookVolume      Cause = "HookVolume"      // a hook runs without a volume that the template does not have
	HookIneffective Cause = "HookIneffective" // what is said of a hook has no effect
)

// A Problem is one thing that is wrong with a payload, and where.
type Problem struct {
	File     string `json:"file"`
	Line     int    `json:"line,omitempty"`     // 0 when the whole file is meant
	Column   int    `json:"column,omitempty"`   // in characters, from 1; 0 when not known
	Document int    `json:"document,omitempty"` // counted from 1; 0 when the whole file is meant
	Object   string `json:"object,omitempty"`   // "Deployment my-namespace/my-name"
	Cause    Cause  `json:"cause"`
	Message  string `json:"message"`
}

// IsWarning says that the payload can be applied all the same.
func (p Problem) IsWarning() bool {
	switch p.Cause {
	case RepeatedKey, UnknownField, WrongType, Unrecognized, Imageless, Placeholder, Suspicious, HookVolume, HookIneffective:
		return true
	default:
		return false
	}
}

// Anywhere is the same problem wherever in its file it stands.
func (p Problem) Anywhere() Problem {
	p.Line, p.Column, p.Message = 0, 0, WithoutLines(p.Message)
	return p
}

// lineOfFile is how messages name a line of another file.
var lineOfFile = regexp.MustCompile(`:\d+`)

// WithoutLines returns a message without line numbers, so that it stays the same when lines are added to a file
// that it names.
func WithoutLines(message string) string { return lineOfFile.ReplaceAllString(message, "") }

// String is the problem in one line: file, line, document, object, message.
func (p Problem) String() string {
	var where strings.Builder
	where.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&where, ":%d", p.Line)
	}
	where.WriteString(": ")
	if p.Document > 0 {
		fmt.Fprintf(&where, "document %d: ", p.Document)
	}
	if p.Object != "" {
		where.WriteString(p.Object + ": ")
	}
	return printable.Line(where.String() + strings.ReplaceAll(p.Message, "\n", " "))
}

// Problems is an error of one line for each problem.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// Refuse returns an error of those problems for which a payload is refused, and
// nil when there are none.
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

// byPlace orders problems as a reader meets them.
func byPlace(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Document, b.Document))
}

// listSome sorts the problems, and keeps no more than the limit.
func (r *reader) listSome() {
	slices.SortStableFunc(r.problems, byPlace)
	listed := min(len(r.problems), maxProblems)
	rest := r.problems[listed:]
	if count := len(rest) + r.unlisted; count > 0 {
		more := Problem{File: ".", Cause: Suspicious, Message: fmt.Sprintf("%d more problems are not listed: correct these first", count)}
		if slices.ContainsFunc(rest, func(p Problem) bool { return !p.IsWarning() }) {
			more.Cause = Malformed
		}
		r.problems = append(r.problems[:listed:listed], more)
	}
}
