package session_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/text/reason"
	"github.com/runlevel/runlevel/pkg/graph"
)

// leaveOut makes an apply one of a release without some of its manifests.
func leaveOut(o *session.Options) {
	o.LeftOut = &reason.Error{Reason: record.ReasonLeftOut, Message: "a file can't be read"}
}

// TestAReleaseWithoutSomeManifestsDeletesNothing: the replacement of a deleted object may be in a left out manifest.
// The next apply, of the whole release, deletes it.
func TestAReleaseWithoutSomeManifestsDeletesNothing(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	r.must("1.0.0", both)
	for range 2 {
		outcome := r.roll(t.Context(), "1.0.1", neither, leaveOut)
		if outcome.Err == nil && (!r.exists("a") || !r.exists("b")) || len(outcome.Deletes) > 0 {
			t.Fatalf("%v; an object was deleted, or is to be: %+v", outcome.Err, outcome.Deletes)
		}
	}
	r.must("1.0.1", neither+another)
	if r.exists("a") || r.exists("b") {
		t.Error("the whole release deletes nothing")
	}
}

// TestTheReleaseAfterAnInstallWithoutSomeManifests is an update: it is applied in order, and deletes.
func TestTheReleaseAfterAnInstallWithoutSomeManifests(t *testing.T) {
	t.Parallel()
	r := newRelease(t)
	for range 2 {
		if mode := r.roll(t.Context(), "1.0.0", both, leaveOut).Mode; mode != graph.Install {
			t.Errorf("the first release is applied as %s", mode)
		}
	}
	next := r.must("1.0.1", neither)
	if next.Mode != graph.Update || !next.WasLeftOut || r.exists("a") {
		t.Errorf("the next release is applied as %s (%+v), and a exists: %t", next.Mode, next, r.exists("a"))
	}
}
