package lint

import (
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules report what a rehearsal has shown: the release was applied to a real control plane, see package rehearse.

// A Rehearsal is what a rehearsal of a release has shown.
type Rehearsal struct{ Observations []RehearsalObservation }

// A RehearsalObservation is what a rehearsal has shown of one manifest.
type RehearsalObservation struct {
	Rule    string
	In      Origin   // InPayload, or InPrevious
	Path    string   // of the file
	Line    int      // of the manifest
	Object  string   // its name, for messages
	Field   []string // nil if the whole manifest is meant
	Message string
	Made    *kinds.ID // of RehearsalMade: what was made
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

// RehearsalRules returns the rules that a rehearsal answers.
func RehearsalRules() []Rule {
	var rules []Rule
	for _, rule := range []struct {
		id       string
		severity Severity
		summary  string
	}{
		{RehearsalRefused, Error, "The API server refuses an object."},
		{RehearsalNotReady, Error, "An object does not become ready."},
		{RehearsalGate, Error, "The gate blocks the update."},
		{RehearsalPending, Error, "A delete does not end."},
		{RehearsalLeft, Error, "An object of the previous release is left behind."},
		{RehearsalRetried, Warning, "An object can be applied only after another one that comes later, or beside it."},
		{RehearsalAgain, Warning, "A second apply of the same release changes an object."},
		{RehearsalOverwritten, Warning, "A field that another manager has set is overwritten."},
		{RehearsalBudget, Warning, "The update leaves fewer healthy pods than a PodDisruptionBudget demands."},
		{RehearsalWarned, Warning, "The API server warns of an object."},
		{RehearsalMade, Warning, "What an object needs is in no release, and was made for the rehearsal: a " +
			"Namespace, a definition, a class."},
		{RehearsalRestarted, Info, "The update replaces the pods of a workload."},
		{RehearsalNotTried, Info, "Something could not be tried."},
		{RehearsalPrevious, Info, "An object of the previous release could not be installed in the rehearsal."},
	} {
		rules = append(rules, Rule{rule.id, rule.severity, rule.summary, needsRehearsal, func(s *subject, r *reporter) {
			reportObservations(s, rule.id, r)
		}})
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

// NeedsRehearsal reports whether a rule is about what a rehearsal has shown.
func (r Rule) NeedsRehearsal() bool { return r.needs == needsRehearsal }

// reportObservations reports the observations of a rule, at their manifests.
func reportObservations(s *subject, id string, r *reporter) {
	for _, seen := range s.rehearsal.Observations {
		if seen.Rule != id {
			continue
		}
		m := observedBy(s, seen)
		if s.config.Known.has(seen.Made) {
			continue
		}
		if m != nil {
			r.field(m, seen.Field, "%s", seen.Message)
		} else {
			r.report(Finding{File: seen.Path, Line: seen.Line, Object: seen.Object, In: seen.In, Message: seen.Message})
		}
	}
}

// repeats are the rules of rehearsals whose findings other rules have, too, with how to fix them.
var repeats = map[string][]string{
	RehearsalLeft: {"dropped", "renamed", "narrowed"},
	RehearsalMade: {"missing-namespace"},
	RehearsalRefused: {"immutable-changed", "job-changed", "stored-version-dropped", "unknown-field", "wrong-type",
		"custom-resource", "definition"},
}

// withoutRepeats drops what a rehearsal has shown of an object if another rule has found it without one.
func withoutRepeats(found []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(found), func(seen Finding) bool {
		rules := repeats[seen.Rule]
		return rules != nil && slices.ContainsFunc(found, func(other Finding) bool {
			isRule := slices.Contains(rules, other.Rule) ||
				seen.Rule == RehearsalRefused && strings.HasPrefix(other.Rule, "invalid-")
			isPlace := other.Object == seen.Object && (seen.Rule == RehearsalLeft || other.Line == seen.Line)
			return isRule && isPlace && other.Severity.AtLeast(seen.Severity)
		})
	})
}

// has reports whether the configuration names an object that others make.
func (k Known) has(made *kinds.ID) bool {
	isNamespace := made != nil && made.GroupKind() == kinds.Namespace && slices.Contains(k.Namespaces, made.Name)
	return isNamespace || made != nil && slices.Contains(k.Objects, made.String())
}

// observedBy returns the manifest of an observation; nil if it has none.
func observedBy(s *subject, seen RehearsalObservation) *manifest {
	in := s.index
	if seen.In == InPrevious {
		in = s.previous
	}
	if in == nil {
		return nil
	}
	for _, m := range in.manifests {
		if m.Path == seen.Path && m.Line == seen.Line {
			return m
		}
	}
	return nil
}
