package deploymenthook

import "cmp"

// A HookRule is a rule that hooks are checked against.
type HookRule string

// The rules for which a release is refused.
const (
	RuleInvalid   HookRule = "Invalid"   // the annotation can't be read, or has an invalid field or value
	RuleContainer HookRule = "Container" // the template has no container of that name
	RuleStrategy  HookRule = "Strategy"  // the Deployment's strategy does not allow the hook
	RuleMisplaced HookRule = "Misplaced" // hooks are on another kind, or under a misspelt name
)

// The rules that only warn.
const (
	RuleUnknownVolume HookRule = "UnknownVolume" // the template has no such volume, and the hook runs without it
	RuleNoEffect      HookRule = "NoEffect"      // the field has no effect
)

// A HookProblem is a problem of the hooks of a manifest, and its place.
type HookProblem struct {
	Rule    HookRule `json:"rule"`
	Path    []string `json:"path"`            // of the field of the manifest: the annotation, or what contradicts it
	Field   string   `json:"field,omitempty"` // within the annotation: pre.execNewPod.env[1].name
	Line    int      `json:"line,omitempty"`  // of the annotation's text, from 1; 0 if the problem is outside of it
	Column  int      `json:"column,omitempty"`
	Message string   `json:"message"` // a sentence that names the field, and what to write instead
}

// IsWarning reports whether the release can be applied nevertheless.
func (p HookProblem) IsWarning() bool { return p.Rule == RuleUnknownVolume || p.Rule == RuleNoEffect }

// byPlace orders problems by their place in the manifest.
func byPlace(a, b HookProblem) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
