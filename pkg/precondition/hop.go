package precondition

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/runlevel/runlevel/internal/record"
)

// A distance is the kind of an update, by its versions.
type distance string

const (
	install distance = "install" // no version was applied before
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

// hop returns the requested update, from the version that was applied last. A later version that was only started may
// be continued, and corrected by a patch.
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

// start returns the last completed update, or else the last one that was started.
func (f *Facts) start() *record.HistoryEntry {
	if applied := f.Record.Applied(); applied != nil {
		return applied
	}
	return f.Record.Newest()
}

// hopFrom returns the update from the version of an entry of the history.
func (f *Facts) hopFrom(e *record.HistoryEntry) hop {
	before, after := parse(e.Version), parse(f.Payload.Version)
	switch {
	case before == nil || after == nil:
		if e.Hash == f.Payload.Hash {
			return hop{distance: again}
		}
		return hop{distance: minor}
	default:
		return hop{distanceOf(before, after), before, after}
	}
}

// distanceOf returns the distance from one version to another.
func distanceOf(before, after *version.Version) distance {
	switch {
	case before.Major() != after.Major():
		return major
	case before.Minor() != after.Minor():
		return minor
	case before.LessThan(after) || after.LessThan(before):
		return patch
	default:
		return again
	}
}

// IsMinor reports whether an update changes the minor version, or the major one. An install changes none. For versions
// that can't be compared, IsMinor returns true.
func IsMinor(oldVersion, newVersion string) bool {
	if oldVersion == "" || oldVersion == newVersion {
		return false
	}
	before, after := parse(oldVersion), parse(newVersion)
	return before == nil || after == nil || hop{distance: distanceOf(before, after)}.isMinorOrMajor()
}

// isMinorOrMajor reports whether the update is to another minor or major version: pending deletes and admin gates stop
// such updates.
func (h hop) isMinorOrMajor() bool { return h.distance == minor || h.distance == major }

// isKnown reports whether both versions are known.
func (h hop) isKnown() bool { return h.from != nil && h.to != nil }

// String describes the update, as in "the minor update from 1.2.3 to 1.3.0".
func (h hop) String() string {
	switch {
	case h.distance == install:
		return "an install"
	case h.distance == again && h.isKnown():
		return fmt.Sprintf("applying %s again", h.to)
	case h.distance == again:
		return "applying the same payload again"
	case !h.isKnown():
		return "an update between versions that are not known, which counts as a minor one,"
	default:
		return fmt.Sprintf("the %s update from %s to %s", h.distance, h.from, h.to)
	}
}

// parse parses a version; nil if the text is not a version.
func parse(text string) *version.Version {
	parsed, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return parsed
}
