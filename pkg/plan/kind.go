package plan

import "k8s.io/apimachinery/pkg/util/version"

// An UpdateKind is what an update is, by the versions of its two releases.
type UpdateKind string

// The kinds of updates.
const (
	Patch     UpdateKind = "patch"
	Minor     UpdateKind = "minor"
	Major     UpdateKind = "major"
	Same      UpdateKind = "same"
	Downgrade UpdateKind = "downgrade"
	Unknown   UpdateKind = "unknown" // one of the releases has no version
)

// kindOf judges two versions.
func kindOf(from, to string) UpdateKind {
	old, err := version.ParseSemantic(from)
	if err != nil {
		return Unknown
	}
	next, err := version.ParseSemantic(to)
	switch {
	case err != nil:
		return Unknown
	case next.LessThan(old):
		return Downgrade
	case !old.LessThan(next):
		return Same
	case next.Major() != old.Major():
		return Major
	case next.Minor() != old.Minor():
		return Minor
	default:
		return Patch
	}
}
