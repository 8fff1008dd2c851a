// Package lint looks for mistakes in a release before it is published: in one payload
// alone, or in an update to it from the previous payload. A rule is a
// small value with a name that stays, a severity, a sentence, and a function that
// reports; the list of them, in rules.go, reads from top to bottom.
//
// It reads no files and asks no cluster: payloads come in, findings go out, each with
// its file and line. Comments in the manifests and the configuration ignore findings,
// always with a reason. A baseline accepts findings that are to be fixed later.
//
// Run is the call to start from. Explain is the page of a rule: rules/ID.txtar has it, with the examples that are the
// rule's tests.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Severity says how bad a finding is.
type Severity string

// The severities. Off is for a configuration that does not want a rule.
const (
	Error   Severity = "error"   // it fails, loses something, or does not do what was meant
	Warning Severity = "warning" // it may
	Info    Severity = "info"    // good to know
	Off     Severity = "off"
)

// rank orders severities.
func (s Severity) rank() int { return slices.Index([]Severity{Off, Info, Warning, Error}, s) }

// AtLeast says whether a severity is another one or worse.
func (s Severity) AtLeast(other Severity) bool { return s.rank() >= other.rank() }

// A Rule is one thing to look for.
type Rule struct {
	ID       string
	Severity Severity
	Summary  string // one sentence
	needs    need
	check    func(*subject, *reporter)
}

// A need is what a rule can't do without.
type need string

const (
	nothing       need = ""
	needsPrevious need = "a previous payload"
	needsVersions need = "a previous payload, and the versions of both"
	needsImages   need = "the release's image-references"
)

// A Finding is what a rule has found, and where.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"`     // 0 when the whole file is meant
	Column   int      `json:"column,omitempty"`   // in characters, from 1; 0 when all of the line is meant
	Document int      `json:"document,omitempty"` // counted from 1; 0 when the whole file is meant
	Object   string   `json:"object,omitempty"`
	Message  string   `json:"message"`
	// In says where the file is, if it is none of the payload.
	In Origin `json:"in,omitempty"`
	// Near is where in the payload a finding in the previous one is to be fixed.
	Near *Place `json:"near,omitempty"`
	// Suppressed says why it does not count.
	Suppressed *Suppression `json:"suppressed,omitempty"`

	manifest *manifest
	field    []string
}

// String is the finding in one line, in the form that editors and problem matchers know:
// file, line, column, severity, object, message, rule.
func (f Finding) String() string {
	where := f.File
	if f.Line > 0 {
		where += fmt.Sprintf(":%d:%d", f.Line, max(1, f.Column))
	}
	message := f.Message
	if f.Object != "" {
		message = f.Object + ": " + message
	}
	if f.In == InPrevious {
		message = "previous " + message
	}
	return printable.Line(fmt.Sprintf("%s: %s: %s [%s]", where, f.Severity, message, f.Rule))
}

// Field is the path of the field that a finding is about; nil if it is about all of a
// manifest, or a rule does not say.
func (f Finding) Field() []string { return slices.Clone(f.field) }

// An Origin is where a file is.
type Origin string

// The origins of files.
const (
	InPayload  Origin = ""
	InPrevious Origin = "previous" // the payload before
	InConfig   Origin = "config"   // it is the configuration
	InRelease  Origin = "release"  // a file of the payload that is another component's: see ComponentChange
	InBaseline Origin = "baseline" // it is the baseline
)

// A Suppression is why a finding does not count, and the place of the comment or entry that says so.
type Suppression struct {
	Reason string `json:"reason"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	In     Origin `json:"in,omitempty"`
}

// Input is what to lint.
type Input struct {
	Payload  *payload.Payload  // read with KeepText, so that findings have lines
	Problems []payload.Problem // of reading it
	Previous *payload.Payload  // the release before, if there is one
	Config   Config
	Change   *ComponentChange // what is asked about, if it is not all of the payload
	Baseline *Baseline        // what is known today and accepted; nil if nothing is
}

// A Result is what was found.
type Result struct {
	Findings   []Finding `json:"findings"`   // that count, in the order of files
	Suppressed []Finding `json:"suppressed"` // that don't
	Skipped    []Skipped `json:"skipped"`    // rules that could not look
	Ran        []string  `json:"-"`          // rules that could, in the order of Rules
}

// A Skipped rule had not what it needs.
type Skipped struct {
	Rule  string `json:"rule"`
	Needs string `json:"needs"`
}

// Run looks at a payload with all rules that its configuration does not turn off. The
// error is for a context that ended.
func Run(ctx context.Context, input Input) (*Result, error) {
	result, err := run(ctx, input)
	if err == nil && input.Change != nil {
		err = input.Change.only(ctx, input, result)
	}
	if err != nil {
		return nil, err
	}
	result.accept(input.Baseline, input.Config)
	return result, nil
}

// run looks at all of a payload.
func run(ctx context.Context, input Input) (*Result, error) {
	s := newSubject(ctx, input)
	result := &Result{Findings: []Finding{}, Suppressed: []Finding{}, Skipped: []Skipped{}}
	var found []Finding
	for _, rule := range Rules() {
		severity := input.Config.severity(rule)
		if severity == Off {
			continue
		}
		if s.isMissing(rule.needs) {
			result.Skipped = append(result.Skipped, Skipped{Rule: rule.ID, Needs: string(rule.needs)})
			continue
		}
		result.Ran = append(result.Ran, rule.ID)
		if rule.check == nil {
			continue
		}
		r := &reporter{rule: rule, severity: severity}
		if err := r.run(ctx, s); err != nil {
			return nil, err
		}
		found = append(found, r.findings...)
	}
	locate(found)
	s.locateNear(found)
	result.add(newIgnores(s, result.Ran), found)
	return result, nil
}

// add sorts findings into those that count and those that are ignored.
func (r *Result) add(ignores *ignores, found []Finding) {
	for _, finding := range found {
		if finding.Suppressed = ignores.suppress(finding); finding.Suppressed != nil {
			r.Suppressed = append(r.Suppressed, finding)
		} else {
			r.Findings = append(r.Findings, finding)
		}
	}
	r.Findings = append(r.Findings, ignores.findings()...)
	slices.SortStableFunc(r.Findings, byPlace)
	slices.SortStableFunc(r.Suppressed, byPlace)
}

// byPlace orders findings as a reader meets them.
func byPlace(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Document, b.Document), cmp.Compare(a.Rule, b.Rule))
}

// locate finds the lines of findings, reading each manifest's text once.
func locate(findings []Finding) {
	places := map[*manifest]*payload.Places{}
	for i := range findings {
		f := &findings[i]
		if f.manifest == nil || f.field == nil || f.manifest.Text() == nil {
			continue
		}
		if places[f.manifest] == nil {
			places[f.manifest] = f.manifest.Places()
		}
		f.Line, f.Column = places[f.manifest].At(f.field...)
	}
}

// A reporter collects what one rule finds.
type reporter struct {
	rule     Rule
	severity Severity
	findings []Finding
}

// run runs the rule, and returns when the context ends, even if the rule takes longer.
func (r *reporter) run(ctx context.Context, s *subject) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.rule.check(s, r)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// at reports something about a manifest as a whole.
func (r *reporter) at(m *manifest, format string, args ...any) {
	r.field(m, nil, format, args...)
}

// field reports something about a field of a manifest.
func (r *reporter) field(m *manifest, field []string, format string, args ...any) {
	f := Finding{
		File: m.Path, Line: m.Line, Document: m.Document, Object: m.id.String(),
		Message: fmt.Sprintf(format, args...), manifest: m, field: field,
	}
	if m.isPrevious {
		f.In = InPrevious
	}
	if m.LinesAreRendered() {
		f.Message += payload.LineNote
	}
	r.report(f)
}

// file reports something about a file, or a line of it.
func (r *reporter) file(path string, line int, format string, args ...any) {
	r.report(Finding{File: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (r *reporter) report(f Finding) {
	f.Rule, f.Severity, f.Message = r.rule.ID, r.severity, printable.Line(f.Message)
	r.findings = append(r.findings, f)
}

// annotation is the path of an annotation.
func annotation(key string) []string { return []string{"metadata", "annotations", key} }
