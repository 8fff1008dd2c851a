package precondition

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/record"
)

// A distance is how far an update goes.
type distance string

const (
	install distance = "install" // nothing was there before
	again   distance = "again"   // it is the same version
	patch   distance = "patch"
	minor   distance = "minor"
	major   distance = "major"
)

// A hop is an update, from one version to another.
type hop struct {
	distance
	from, to *version.Version // nil if either is not known
}

// hop is the update that is asked for. Its start is the version that was applied last. One
// that was begun since may be gone on with, and corrected by a patch.
func (f *Facts) hop() hop {
	newest, start := f.Record.Newest(), f.start()
	if newest == nil {
		return hop{distance: install}
	}
	whole := f.hopFrom(start)
	if whole.isMinorOrMajor() && start != newest {
		if rest := f.hopFrom(newest); !rest.isMinorOrMajor() {
			return rest
		}
	}
	return whole
}

// start is the last update that was completed, or else the last one that was begun.
func (f *Facts) start() *record.HistoryEntry {
	if applied := f.Record.Applied(); applied != nil {
		return applied
	}
	return f.Record.Newest()
}

// hopFrom is the update from what an entry of the history says.
func (f *Facts) hopFrom(e *record.HistoryEntry) hop {
	from, to := parse(e.Version), parse(f.Payload.Version)
	switch {
	case from == nil || to == nil:
		if e.Hash == f.Payload.Hash {
			return hop{distance: again}
		}
		return hop{distance: minor}
	default:
		return hop{distanceOf(from, to), from, to}
	}
}

// distanceOf returns how far it is from one version to another.
func distanceOf(from, to *version.Version) distance {
	switch {
	case from.Major() != to.Major():
		return major
	case from.Minor() != to.Minor():
		return minor
	case from.LessThan(to) || to.LessThan(from):
		return patch
	default:
		return again
	}
}

// IsMinor returns whether an update changes the minor version, or the major one. An install changes none; of versions
// that can't be compared, it is assumed.
func IsMinor(from, to string) bool {
	if from == "" || from == to {
		return false
	}
	before, after := parse(from), parse(to)
	return before == nil || after == nil || hop{distance: distanceOf(before, after)}.isMinorOrMajor()
}

// isMinorOrMajor reports whether the update is to another minor or major version: pending deletes and admin gates stop it.
func (h hop) isMinorOrMajor() bool { return h.distance == minor || h.distance == major }

// isKnown says whether both versions are.
func (h hop) isKnown() bool { return h.from != nil && h.to != nil }

// String says which update it is.
func (h hop) String() string {
	switch {
	case h.distance == install:
		return "an install"
	case h.distance == again && h.isKnown():
		return fmt.Sprintf("applying %s again", h.to)
	case h.distance == again:
		return "applying the same payload again"
	case !h.isKnown():
		return "an update that does not say from which version to which, and so counts as a minor one,"
	default:
		return fmt.Sprintf("the %s update from %s to %s", h.distance, h.from, h.to)
	}
}

// parse reads a version; nil if it is none.
func parse(text string) *version.Version {
	parsed, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return parsed
}
