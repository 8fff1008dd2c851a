package record_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/record"
)

// updates returns a record with updates of versions, the newest first. A version that ends with "..." was not
// completed, and one that begins with "back " is a rollback to revision 1.
func updates(versions ...string) *record.Record {
	r := &record.Record{Release: "shop"}
	for i, version := range versions {
		done := metav1.NewTime(time.Date(2026, 1, 2, 3, 60-i, 0, 0, time.UTC))
		e := record.HistoryEntry{Revision: len(versions) - i, State: record.Completed, Completed: &done}
		if begun, isBegun := strings.CutSuffix(version, "..."); isBegun {
			version, e.State, e.Completed = begun, record.Partial, nil
		}
		if target, isRollback := strings.CutPrefix(version, "back "); isRollback {
			version, e.Rollback = target, &record.Rollback{To: 1, From: len(versions) - i - 1}
		}
		e.Version, e.Hash = version, "hash of "+version
		r.History = append(r.History, e)
	}
	return r
}

func TestFindRollback(t *testing.T) {
	for _, test := range []struct {
		of       *record.Record
		revision string
		want     record.Rollback
	}{
		{updates("1.1.0", "1.0.0"), "", record.Rollback{To: 1, From: 2, Version: "1.1.0"}},
		{updates("1.2.0...", "1.1.0", "1.0.0"), "", record.Rollback{To: 2, From: 3, Version: "1.2.0"}},
		{updates("1.2.0", "1.1.0", "1.0.0"), "1", record.Rollback{To: 1, From: 3, Version: "1.2.0"}},
		{updates("1.2.0", "1.1.0", "1.0.0"), "1.1.0", record.Rollback{To: 2, From: 3, Version: "1.2.0"}},
		{updates("1.2.0", "1.2.0...", "1.1.0"), "", record.Rollback{To: 1, From: 3, Version: "1.2.0"}},
		// A rollback that was killed continues.
		{updates("back 1.0.0...", "1.1.0", "1.0.0"), "", record.Rollback{To: 1, From: 2, Version: "1.1.0"}},
		{updates("back 1.0.0...", "1.1.0", "1.0.0"), "1", record.Rollback{To: 1, From: 2, Version: "1.1.0"}},
		// If no version was ever completed, there are only such versions to return to.
		{updates("1.0.1...", "1.0.0..."), "", record.Rollback{To: 1, From: 2, Version: "1.0.1"}},
		{updates("1.0.2...", "1.0.1...", "1.0.0..."), "1.0.0", record.Rollback{To: 1, From: 3, Version: "1.0.2"}},
		{updates("back 1.0.0...", "1.0.1...", "1.0.0..."), "", record.Rollback{To: 1, From: 2, Version: "1.0.1"}},
	} {
		got, err := test.of.FindRollback(test.revision)
		if err != nil {
			t.Errorf("%v, %q: %v", test.of.History, test.revision, err)
			continue
		}
		if diff := cmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%v, %q: %s", test.of.History, test.revision, diff)
		}
	}
}

func TestRollbackThatIsImpossible(t *testing.T) {
	for _, test := range []struct {
		of             *record.Record
		revision, want string
	}{
		{updates(), "", "was never applied"},
		{updates("1.0.0"), "", "has no version before 1.0.0 to return to"},
		{updates("1.0.0..."), "", "has no version before 1.0.0 to return to"},
		{updates("1.0.1...", "1.0.0..."), "2", "is at 1.0.1 already"},
		{updates("1.1.0", "1.0.0"), "1.1.0", "is at 1.1.0 already"},
		{updates("1.1.0", "1.0.0"), "7", "has no revision 7"},
		{updates("1.2.0", "1.1.0...", "1.0.0"), "2", "was never completed"},
		{updates("back 1.0.0", "1.1.0", "1.0.0"), "", "name the revision to go to"},
	} {
		if _, err := test.of.FindRollback(test.revision); err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.revision, err, test.want)
		}
	}
}
