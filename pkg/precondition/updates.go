package precondition

import (
	"fmt"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// judgeLock implements ApplyRunning. A lock whose holder has died does not block: the
// next apply takes it over.
func judgeLock(f *Facts) []Finding {
	if f.Held == nil {
		return nil
	}
	holder, began := printable.Line(f.Held.Name), f.Held.Since.UTC().Format(time.RFC3339)
	verb := "apply"
	if f.Record != nil && f.Record.Uninstall != nil && f.Record.Uninstall.By == f.Held.Name {
		verb = "uninstall"
	}
	if f.Held.IsDead(f.Now) {
		return []Finding{warns("applying again, which takes over the lock",
			"%s began to %s the release at %s, and has not renewed its lock since %s: the lock has expired",
			holder, verb, began, f.Held.Renewed.UTC().Format(time.RFC3339)).withSince(f.Held.Since)}
	}
	if f.Held.Keeps() {
		return []Finding{blocks(lock.KeeperEnd, "%s has been keeping the release in place since %s", holder,
			began).withSince(f.Held.Since)}
	}
	return []Finding{blocks("waiting for its end", "%s has been %sing the release since %s", holder, verb,
		began).withSince(f.Held.Since)}
}

// judgeAge implements OlderVersion.
func judgeAge(f *Facts) []Finding {
	newest := f.Record.Newest()
	if newest == nil || f.goesBack() {
		return nil
	}
	before, after := parse(newest.Version), parse(f.Payload.Version)
	if before == nil || after == nil || !after.LessThan(before) {
		return nil
	}
	verb, when := "was begun", newest.Started.Time
	if newest.State == record.Completed && newest.Completed != nil {
		verb, when = "was applied", newest.Completed.Time
	}
	resolution, rule := fmt.Sprintf("updating to %s or newer", before), "releases don't go back"
	previous := f.previous()
	switch {
	case previous == nil:
	case distanceOf(parse(previous.Version), before) != patch:
		rule = fmt.Sprintf("a release does not go back from one minor version to another, as to %s before it",
			printable.Line(previous.Version))
	case after.String() != parse(previous.Version).String():
		rule = fmt.Sprintf("a release only goes back to the version before it, %s", printable.Line(previous.Version))
		resolution += ", or to " + printable.Line(previous.Version)
	default:
		return nil
	}
	return []Finding{blocks(resolution, "%s is older than %s, which %s at %s: %s", after, before, verb,
		when.UTC().Format(time.RFC3339), rule).withSince(when)}
}

// previous returns the version before the newest one, to which a patch update may go back; nil if there is none.
func (f *Facts) previous() *record.HistoryEntry {
	newest := f.Record.Newest()
	for i := range f.Record.History {
		if entry := &f.Record.History[i]; entry.Version != newest.Version && parse(entry.Version) != nil {
			return entry
		}
	}
	return nil
}

// judgeContent implements ChangedContent, also for a return to an earlier version. A version that was started with
// these files, because nothing was completed yet or because it was forced, may be continued.
func judgeContent(f *Facts) []Finding {
	if f.goesBack() {
		return nil
	}
	if target := f.rolledBackTo(); target != nil {
		return []Finding{blocks("rolling back to a version whose files are unchanged",
			"the kept files of revision %d are not those that were applied", target.Revision)}
	}
	newest := f.Record.Newest()
	index := slices.IndexFunc(f.Record.History, func(e record.HistoryEntry) bool {
		return e.State == record.Completed && e.Version != "" && e.Version == f.Payload.Version
	})
	if index < 0 {
		return nil
	}
	applied := &f.Record.History[index]
	// an entry with files has their hash
	isOld := applied.Content == "" && (applied.Files == nil || applied.Files.Digest == "")
	if isOld || applied.Content == f.Payload.Content {
		return nil
	}
	if newest.Version == f.Payload.Version && newest.Content == f.Payload.Content {
		return nil
	}
	when := applied.Started.Time
	if applied.Completed != nil {
		when = applied.Completed.Time
	}
	text := fmt.Sprintf("the files of %s are not those that were applied as %[1]s at %s", applied.Version,
		when.UTC().Format(time.RFC3339))
	if applied.Source != "" {
		text += " from " + applied.Source
	}
	return []Finding{blocks("publishing the new files as a new version, or applying the files of that version",
		"%s",
		printable.Line(text)).withSince(when)}
}

// judgeHop implements GiantHop. An update to a new major version must be to its first minor version, from
// any minor version of the old one.
func judgeHop(f *Facts) []Finding {
	if f.Record.Newest() == nil {
		return nil
	}
	h := f.hopFrom(f.start())
	if !h.isKnown() || !h.from.LessThan(h.to) {
		return nil
	}
	next := fmt.Sprintf("%d.%d", h.from.Major(), h.from.Minor()+1)
	if h.distance == major {
		next = fmt.Sprintf("%d.0", h.from.Major()+1)
	}
	if first := parse(next + ".0"); h.to.Major() == first.Major() && h.to.Minor() <= first.Minor() {
		return nil
	}
	return []Finding{blocks("updating to "+next+" first", "%s skips %s", h, next)}
}
