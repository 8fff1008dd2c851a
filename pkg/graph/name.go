package graph

import (
	"cmp"
	"strings"
)

// A Name is what the name of a manifest's file says: 0000_LEVEL_COMPONENT_rest.
// It is empty when the file is named otherwise.
type Name struct {
	Level     string // digits, compared as text: "5" and "05" are two levels
	Component string // letters, digits, and dashes between them
}

// IsKnown says whether the file name has a level and a component.
func (n Name) IsKnown() bool { return n.Component != "" }

// Words are what people call it: "level 10, web"; "" if it is not known.
func (n Name) Words() string {
	if !n.IsKnown() {
		return ""
	}
	return "level " + n.Level + ", " + n.Component
}

// CompareLevels compares the names of levels by their numbers. Files without a level come last.
func CompareLevels(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// ParseName reads the name of a file. It takes what the cluster-version operator's
// pattern takes, ^0000_(\d+)_([a-zA-Z0-9]+(-[a-zA-Z0-9]+)*?)_ , in a tenth of the
// time of a regular expression.
func ParseName(file string) Name {
	rest, found := strings.CutPrefix(file, "0000_")
	if !found {
		return Name{}
	}
	level, rest, found := strings.Cut(rest, "_")
	if !found || level == "" || strings.Trim(level, "0123456789") != "" {
		return Name{}
	}
	component, _, found := strings.Cut(rest, "_")
	if !found || !isComponent(component) {
		return Name{}
	}
	return Name{Level: level, Component: component}
}

// isComponent says whether a text is words of letters and digits with single
// dashes between them.
func isComponent(text string) bool {
	afterDash := true
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			afterDash = false
		case c == '-' && !afterDash:
			afterDash = true
		default:
			return false
		}
	}
	return !afterDash
}
