package lint

import (
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules report the observations of a rehearsal, which applies the release to a real control plane: see package
// rehearse.

// A Rehearsal is the result of a rehearsal of a release.
type Rehearsal struct{ Observations []Observation }

// An Observation is an observation of a rehearsal about one manifest.
type Observation struct {
	Rule    string
	In      Origin   // InPayload, or InPrevious
	Path    string   // path of the file
	Line    int      // line of the manifest
	Object  string   // its name, for messages
	Field   []string // nil if the whole manifest is meant
	Message string
	Made    *kinds.ID // the created object, for RehearsalMade
}

// needsRehearsal is an input that RehearsalRules require.
const needsRehearsal need = `a rehearsal ("runlevel rehearse")`

// The rules of rehearsals.
const (
	RehearsalRefused     = "rehearsal-refused"
	RehearsalNotReady    = "rehearsal-not-ready"
	RehearsalGate        = "rehearsal-gate"
	RehearsalPending     = "rehearsal-delete-pending"
	RehearsalLeft        = "rehearsal-left-behind"
	RehearsalRetried     = "rehearsal-retried"
	RehearsalAgain       = "rehearsal-changes-again"
	RehearsalOverwritten = "rehearsal-overwritten"
	RehearsalBudget      = "rehearsal-budget"
	RehearsalWarned      = "rehearsal-warned"
	RehearsalRestarted   = "rehearsal-restarted"
	RehearsalMade        = "rehearsal-made"
	RehearsalNotTried    = "rehearsal-not-tried"
	RehearsalPrevious    = "rehearsal-previous"
)

// A rehearsalRule is a rule that a rehearsal answers.
type rehearsalRule struct {
	id       string
	severity Severity
	repeats  []string // the rules without a rehearsal that report the same, and how to fix it
}

var rehearsalRules = []rehearsalRule{
	{RehearsalRefused, Error, []string{"immutable-changed", "job-changed", "stored-version-dropped", "unknown-field",
		"wrong-type", "custom-resource", "definition", "unknown-api",
		"removed-api"}}, // and all rules that begin with "invalid-"
	{RehearsalNotReady, Error, []string{"unadmitted-pod"}},
	{RehearsalGate, Error, nil},
	{RehearsalPending, Error, nil},
	{RehearsalLeft, Error, []string{"dropped", "renamed", "narrowed"}},
	{RehearsalRetried, Warning, []string{"out-of-order", "waits-for-later"}},
	{RehearsalAgain, Warning, nil},
	{RehearsalOverwritten, Warning, nil},
	{RehearsalBudget, Warning, nil},
	{RehearsalWarned, Warning, nil},
	{RehearsalMade, Warning, []string{"missing-namespace"}},
	{RehearsalRestarted, Info, nil},
	{RehearsalNotTried, Info, nil},
	{RehearsalPrevious, Info, nil},
}

// RehearsalRules returns the rules that a rehearsal answers.
func RehearsalRules() []Rule {
	var rules []Rule
	for _, rule := range rehearsalRules {
		check := func(s *subject, r *reporter) { s.reportObservations(rule.id, r) }
		rules = append(rules, Rule{rule.id, rule.severity, needsRehearsal, check})
	}
	return rules
}

// ReadingRules returns the names of the rules about files that can't be read, of which a rehearsal shows nothing.
func ReadingRules() []string {
	var ids []string
	for _, rule := range readingRules() {
		ids = append(ids, rule.ID)
	}
	return ids
}

// NeedsRehearsal reports whether a rule reports observations of a rehearsal.
func (r Rule) NeedsRehearsal() bool { return r.needs == needsRehearsal }

// reportObservations reports the observations of a rule, at their manifests.
func (s *subject) reportObservations(id string, r *reporter) {
	for _, observation := range s.rehearsal.Observations {
		if observation.Rule != id {
			continue
		}
		m := s.observedManifest(observation)
		if s.config.Known.has(observation.Made) {
			continue
		}
		if m != nil {
			r.field(m, observation.Field, "%s", observation.Message)
		} else {
			r.report(Finding{
				File:    observation.Path,
				Line:    observation.Line,
				Object:  observation.Object,
				In:      observation.In,
				Message: observation.Message,
			})
		}
	}
}

// repeatedBy reports whether a finding of a rehearsal has the same cause as a finding of another rule.
func (r rehearsalRule) repeatedBy(finding, other Finding) bool {
	isSame := slices.Contains(r.repeats, other.Rule) ||
		r.id == RehearsalRefused && strings.HasPrefix(other.Rule, "invalid-")
	isField := r.id == RehearsalRefused || r.id == RehearsalMade // others are about the whole object
	return isSame && other.Object == finding.Object && (!isField || other.Line == finding.Line) &&
		other.Severity.AtLeast(finding.Severity)
}

// mergeRepeats leaves out the findings of a rehearsal of which another rule reports the cause, and how to fix it. The
// finding of that rule mentions the rehearsal.
func mergeRepeats(findings []Finding) []Finding {
	isRepeat := make([]bool, len(findings))
	for i, finding := range findings {
		rule := ruleOfRehearsal(finding.Rule)
		for j := range findings {
			other := &findings[j]
			if rule == nil || !rule.repeatedBy(finding, *other) {
				continue
			}
			isRepeat[i] = true
			if other.FoundBy == nil {
				other.FoundBy = []Check{ByLint, ByRehearsal}
				other.Message += " (the rehearsal shows it, too)"
			}
		}
	}
	kept := []Finding{}
	for i, finding := range findings {
		if !isRepeat[i] {
			kept = append(kept, finding)
		}
	}
	return kept
}

// setFoundBy sets which check has found each finding, where only one has.
func setFoundBy(findings []Finding) {
	for i := range findings {
		switch f := &findings[i]; {
		case f.FoundBy != nil:
		case ruleOfRehearsal(f.Rule) != nil:
			f.FoundBy = []Check{ByRehearsal}
		default:
			f.FoundBy = []Check{ByLint}
		}
	}
}

// ruleOfRehearsal returns a rule of rehearsals by its name; nil if it is another rule.
func ruleOfRehearsal(id string) *rehearsalRule {
	if i := slices.IndexFunc(rehearsalRules, func(r rehearsalRule) bool { return r.id == id }); i >= 0 {
		return &rehearsalRules[i]
	}
	return nil
}

// has reports whether the configuration names an object that others make.
func (k Known) has(made *kinds.ID) bool {
	isNamespace := made != nil && made.GroupKind() == kinds.Namespace && slices.Contains(k.Namespaces, made.Name)
	return isNamespace || made != nil && slices.Contains(k.Objects, made.String())
}

// observedManifest returns the manifest of an observation; nil if it has none.
func (s *subject) observedManifest(observation Observation) *manifest {
	i := s.index
	if observation.In == InPrevious {
		i = s.previous
	}
	if i == nil {
		return nil
	}
	for _, m := range i.manifests {
		if m.Path == observation.Path && m.Line == observation.Line {
			return m
		}
	}
	return nil
}
