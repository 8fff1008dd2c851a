// Package lint looks for mistakes in a release before it is published: in one payload
// alone, or in an update to it from the previous payload. A rule is a
// small value with a name that stays, a severity, a sentence, and a function that
// reports; rules.go lists all rules and reads from top to bottom.
//
// It reads no files and no cluster: it takes payloads and returns findings, each with
// its file and line. Comments in the manifests and the configuration ignore findings,
// always with a reason. A baseline accepts findings until they are fixed.
//
// Start with Run. Explain returns the page of a rule. It is in rules/ID.txtar, with the examples that are the rule's
// tests.
package lint

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// A Severity is the severity of a finding.
type Severity string

// The severities. Off is for a configuration that does not want a rule.
const (
	Error   Severity = "error"   // the update fails, loses data, or has another effect than intended
	Warning Severity = "warning" // the update may do so
	Info    Severity = "info"    // good to know
	Off     Severity = "off"
)

// rank orders severities.
func (s Severity) rank() int { return slices.Index([]Severity{Off, Info, Warning, Error}, s) }

// AtLeast reports whether a severity is equal to another one or worse.
func (s Severity) AtLeast(other Severity) bool { return s.rank() >= other.rank() }

// A Rule looks for one kind of mistake.
type Rule struct {
	ID       string
	Severity Severity
	needs    need
	check    func(*subject, *reporter)
}

// A need is the input that a rule requires.
type need string

const (
	nothing       need = ""
	needsPrevious need = "a previous payload"
	needsVersions need = "a previous payload, and the versions of both"
	needsImages   need = "the release's image-references"
)

// A Finding is a mistake that a rule has found, and its place.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	File     string   `json:"file"`               // "" when the whole release is meant
	Line     int      `json:"line,omitempty"`     // 0 when the whole file is meant
	Column   int      `json:"column,omitempty"`   // characters, from 1; 0 when the whole line is meant
	Document int      `json:"document,omitempty"` // counted from 1; 0 when the whole file is meant
	Object   string   `json:"object,omitempty"`
	Message  string   `json:"message"`
	// FoundBy are the checks that have found it: both, if a rule and the rehearsal have found the same.
	FoundBy []Check `json:"foundBy"`
	// In has the origin of the file, if it is not in the payload.
	In Origin `json:"in,omitempty"`
	// Near is the place in the payload where a finding in the previous payload can be fixed.
	Near *Place `json:"near,omitempty"`
	// Suppressed has the reason why the finding does not count; nil if it counts.
	Suppressed *Suppression `json:"suppressed,omitempty"`

	manifest *manifest
	field    []string
}

// A Check is a way to find mistakes.
type Check string

// The checks.
const (
	ByLint      Check = "lint"      // the files
	ByRehearsal Check = "rehearsal" // a temporary control plane
)

// String is the finding in one line, in the form that editors and problem matchers know:
// file, line, column, severity, object, message, rule.
func (f Finding) String() string {
	prefix := f.File
	if f.Line > 0 {
		prefix += fmt.Sprintf(":%d:%d", f.Line, max(1, f.Column))
	}
	message := f.Message
	if f.Object != "" {
		message = f.Object + ": " + message
	}
	if f.In == InPrevious {
		message = "previous " + message
	}
	if prefix != "" {
		prefix += ": "
	}
	return printable.Line(fmt.Sprintf("%s%s: %s [%s]", prefix, f.Severity, message, f.Rule))
}

// Field returns the path of the field that a finding is about; nil if it is about the whole
// manifest, or the rule names no field.
func (f Finding) Field() []string { return slices.Clone(f.field) }

// An Origin is the payload or the input that has a file.
type Origin string

// The origins of files.
const (
	InPayload  Origin = ""
	InPrevious Origin = "previous" // a file of the previous payload
	InConfig   Origin = "config"   // the configuration
	InRelease  Origin = "release"  // a file of another component in the payload: see ComponentChange
	InBaseline Origin = "baseline" // the baseline
)

// A Suppression holds the reason why a finding does not count, and the place of the comment or entry that ignores it.
type Suppression struct {
	Reason string `json:"reason"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	In     Origin `json:"in,omitempty"`
}

// Input contains the payloads and the settings to lint.
type Input struct {
	Payload  *payload.Payload  // read with KeepText, so that findings have lines
	Problems []payload.Problem // found while reading the payload
	Previous *payload.Payload  // the previous release, if there is one
	Config   Config
	Change   *ComponentChange // limits findings to a component; nil for the whole payload
	Baseline *Baseline        // accepted findings; nil if there are none
	// Rehearsal is the result of a rehearsal of the payload, or of the update from the previous one; nil if there was
	// none.
	Rehearsal *Rehearsal
}

// A Result contains the findings of a run.
type Result struct {
	Findings   []Finding `json:"findings"`   // the findings that count, in the order of files
	Suppressed []Finding `json:"suppressed"` // the ignored and accepted findings
	Skipped    []Skipped `json:"skipped"`    // rules that lacked an input
	// Unchecked are the kinds of which only a cluster knows the schemas.
	Unchecked []UncheckedKind `json:"unchecked"`
	Ran       []string        `json:"-"` // all other enabled rules, in the order of Rules
}

// WithPaths returns the result with the paths of files that a function returns.
func (r *Result) WithPaths(pathOf func(file string, origin Origin) string) Result {
	moved := *r
	for _, findings := range []*[]Finding{&moved.Findings, &moved.Suppressed} {
		*findings = slices.Clone(*findings)
		for i := range *findings {
			f := &(*findings)[i]
			f.File = pathOf(f.File, f.In)
			if f.Near != nil {
				f.Near = &Place{File: pathOf(f.Near.File, f.Near.In), Line: f.Near.Line, In: f.Near.In}
			}
			if f.Suppressed != nil {
				suppressed := *f.Suppressed
				suppressed.File = pathOf(suppressed.File, suppressed.In)
				f.Suppressed = &suppressed
			}
		}
	}
	return moved
}

// A Skipped rule lacked an input that it needs.
type Skipped struct {
	Rule  string `json:"rule"`
	Needs string `json:"needs"`
}

// Run checks a payload with all rules that its configuration does not turn off. It returns
// an error only if the context ends.
func Run(ctx context.Context, input Input) (*Result, error) {
	result, err := run(ctx, input)
	if err == nil && input.Change != nil {
		err = input.Change.filter(ctx, input, result)
	}
	if err != nil {
		return nil, err
	}
	result.acceptFindings(input.Baseline, input.Config)
	setFoundBy(result.Findings)
	setFoundBy(result.Suppressed)
	return result, nil
}

// run checks the whole payload.
func run(ctx context.Context, input Input) (*Result, error) {
	s := newSubject(ctx, input)
	result := &Result{Findings: []Finding{}, Suppressed: []Finding{}, Skipped: []Skipped{}}
	var found []Finding
	for _, rule := range Rules() {
		severity := input.Config.severity(rule)
		if severity == Off {
			continue
		}
		if rule.NeedsRehearsal() && input.Rehearsal == nil {
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
	result.Unchecked = s.uncheckedKinds()
	result.add(newIgnores(s, result.Ran), found)
	result.Findings = mergeRepeats(result.Findings)
	return result, nil
}

// add separates ignored findings from the others.
func (r *Result) add(ignores *ignores, found []Finding) {
	for _, finding := range found {
		if finding.Suppressed = ignores.suppress(finding); finding.Suppressed != nil {
			r.Suppressed = append(r.Suppressed, finding)
		} else {
			r.Findings = append(r.Findings, finding)
		}
	}
	r.Findings = append(r.Findings, ignores.unusedEntries()...)
	slices.SortStableFunc(r.Findings, byPlace)
	slices.SortStableFunc(r.Suppressed, byPlace)
}

// byPlace orders findings by file, line, column and rule.
func byPlace(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.In, b.In), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Column, b.Column), cmp.Compare(a.Document, b.Document), cmp.Compare(a.Rule, b.Rule))
}

// locate sets the lines of findings. It parses each manifest's text once.
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

// A reporter collects the findings of one rule.
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

// at reports a finding about a whole manifest.
func (r *reporter) at(m *manifest, format string, args ...any) {
	r.field(m, nil, format, args...)
}

// field reports a finding about a field of a manifest.
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

// note reports a finding about a field with the severity Info, regardless of the severity of the rule.
func (r *reporter) note(m *manifest, field []string, format string, args ...any) {
	r.field(m, field, format, args...)
	r.findings[len(r.findings)-1].Severity = Info
}

// file reports a finding about a file, or one of its lines.
func (r *reporter) file(path string, line int, format string, args ...any) {
	r.report(Finding{File: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

func (r *reporter) report(f Finding) {
	f.Rule, f.Severity, f.Message = r.rule.ID, r.severity, printable.Line(f.Message)
	r.findings = append(r.findings, f)
}

// annotation returns the path of an annotation.
func annotation(key string) []string { return []string{"metadata", "annotations", key} }
