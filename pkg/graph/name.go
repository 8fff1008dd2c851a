package graph

import (
	"cmp"
	"regexp"
	"strings"
)

// A Name is the level and the component in the name of a manifest's file,
// 0000_LEVEL_COMPONENT_rest. It is empty for files with other names.
type Name struct {
	Level     string // digits, compared as text: "5" and "05" are two levels
	Component string // letters, digits, and dashes between them
}

// IsKnown reports whether the file name has a level and a component.
func (n Name) IsKnown() bool { return n.Component != "" }

// Words returns the name for people: "level 10, web"; "" if it is not known.
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

// namePattern is the pattern of the cluster-version operator.
var namePattern = regexp.MustCompile(`^0000_(\d+)_([a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*?)_`)

// ParseName reads the name of a file.
func ParseName(file string) Name {
	found := namePattern.FindStringSubmatch(file)
	if found == nil {
		return Name{}
	}
	return Name{Level: found[1], Component: found[2]}
}
