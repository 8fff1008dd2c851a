package deploymenthook

import "cmp"

// A HookRule is a rule that hooks are checked against, by the name that it has as the cause of a payload's problem.
type HookRule string

// The rules for which a release is refused.
const (
	RuleInvalid   HookRule = "InvalidHooks"   // the annotation can't be read, or has an invalid field or value
	RuleContainer HookRule = "HookContainer"  // the template has no container of that name
	RuleStrategy  HookRule = "HookStrategy"   // the Deployment's strategy does not allow the hook
	RuleMisplaced HookRule = "MisplacedHooks" // hooks are on another kind, or under a misspelt name
)

// The rules that only warn.
const (
	RuleUnknownVolume HookRule = "HookVolume"      // the template has no such volume, and the hook runs without it
	RuleNoEffect      HookRule = "HookIneffective" // the field has no effect
)

// A HookProblem is a problem of the hooks of a manifest, and its place.
type HookProblem struct {
	Rule         HookRule
	Path         []string // of the field of the manifest: the annotation, or what contradicts it
	Line, Column int      // of the annotation's text, from 1; 0 if the problem is outside of it
	Message      string   // names the field, and what to write instead
}

// IsWarning reports whether the release can be applied nevertheless.
func (p HookProblem) IsWarning() bool { return p.Rule == RuleUnknownVolume || p.Rule == RuleNoEffect }

// byPlace orders problems by their place in the manifest.
func byPlace(a, b HookProblem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
