package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// A Rollback is the return of an update to an earlier one of the history.
type Rollback struct {
	To      int    `json:"to"`                // the revision whose files are applied
	From    int    `json:"from"`              // the revision before the rollback
	Version string `json:"version,omitempty"` // version of the revision before the rollback
	By      string `json:"by,omitempty"`      // the process that has begun it
	Reason  string `json:"reason,omitempty"`
}

// String returns the rollback as a sentence.
func (r *Rollback) String() string {
	text := fmt.Sprintf("a rollback from %s to revision %d", titled(r.Version, r.From), r.To)
	if r.By != "" {
		text += " by " + r.By
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// Title returns the version of an update, or its revision if it has none.
func (e *HistoryEntry) Title() string { return titled(e.Version, e.Revision) }

func titled(version string, revision int) string {
	return cmp.Or(version, "revision "+strconv.Itoa(revision))
}

// FindRollback returns the rollback of a release to a revision or version. If the text is empty, the target is the
// last completed update before the newest one, or the update before the newest one if none was ever completed. A
// rollback that has begun and was not completed continues.
func (r *Record) FindRollback(text string) (*Rollback, error) {
	newest := r.Newest()
	if newest == nil {
		return nil, fmt.Errorf("release %s was never applied", r.Release)
	}
	target, err := r.findTarget(text)
	if err != nil {
		return nil, err
	}
	if isCompleted(*newest) && isSame(newest, target) || newest == target && newest.Rollback == nil {
		return nil, fmt.Errorf("release %s is at %s already: \"runlevel apply %[1]s@\" applies it again", r.Release,
			target.Title())
	}
	current := newest
	if i := slices.IndexFunc(r.History, func(e HistoryEntry) bool { return !isSame(&e, target) }); i >= 0 {
		current = &r.History[i]
	}
	return &Rollback{To: target.Revision, From: current.Revision, Version: current.Version}, nil
}

// findTarget returns the update that a rollback returns to.
func (r *Record) findTarget(text string) (*HistoryEntry, error) {
	newest := r.Newest()
	switch {
	case text != "":
		return r.findCompleted(text)
	case newest.Rollback != nil && isCompleted(*newest):
		return nil, fmt.Errorf("revision %d of release %s is %s: name the revision to go to, as \"runlevel history "+
			"%[2]s\" lists them", newest.Revision, r.Release, newest.Rollback)
	case newest.Rollback != nil:
		return r.findCompleted(strconv.Itoa(newest.Rollback.To))
	}
	index := slices.IndexFunc(r.History, func(e HistoryEntry) bool {
		return isCompleted(e) && !(isCompleted(*newest) && isSame(&e, newest))
	})
	// its install failed: the version that was applied before is all that there is to return to
	if index < 0 && r.Applied() == nil {
		index = slices.IndexFunc(r.History, func(e HistoryEntry) bool { return !isSame(&e, newest) })
	}
	if index < 0 {
		return nil, fmt.Errorf("release %s has no version before %s to return to", r.Release, newest.Title())
	}
	return &r.History[index], nil
}

// findCompleted returns the named update if it was completed, or a completed update with the same manifests. If no
// update of the release was ever completed, it returns the named one.
func (r *Record) findCompleted(text string) (*HistoryEntry, error) {
	named, err := r.FindRevision(text)
	if err != nil || isCompleted(*named) || r.Applied() == nil {
		return named, err
	}
	index := slices.IndexFunc(r.History, func(e HistoryEntry) bool { return isCompleted(e) && isSame(&e, named) })
	if index < 0 {
		return nil,
			fmt.Errorf("revision %d (%s) of release %s was never completed, and a rollback needs a completed one: "+
				"\"runlevel apply %[3]s@%[1]d\" applies it", named.Revision, cmp.Or(named.Version, "without a version"),
				r.Release)
	}
	return &r.History[index], nil
}

// isSame reports whether two updates have the same manifests and version.
func isSame(a, b *HistoryEntry) bool {
	return a.Revision == b.Revision || a.Hash != "" && a.Hash == b.Hash && a.Version == b.Version
}

// Since returns the updates after a revision, the newest first.
func (r *Record) Since(revision int) []HistoryEntry {
	index := slices.IndexFunc(r.History, func(e HistoryEntry) bool { return e.Revision <= revision })
	if index < 0 {
		return r.History
	}
	return r.History[:index]
}
