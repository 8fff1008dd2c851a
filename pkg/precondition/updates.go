package precondition

import (
	"fmt"
	"slices"
	"time"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// judgeLock is ApplyRunning. A lock whose holder has died does not block: the
// next apply takes it over.
func judgeLock(f *Facts) []CheckFinding {
	if f.Held == nil {
		return nil
	}
	holder, began := printable.Line(f.Held.Name), f.Held.Since.UTC().Format(time.RFC3339)
	verb := "apply"
	if f.Record != nil && f.Record.Uninstall != nil && f.Record.Uninstall.By == f.Held.Name {
		verb = "uninstall"
	}
	if f.Held.IsDead(f.Now) {
		return []CheckFinding{warns("the next apply, which takes the lock over",
			"%s began to %s the release at %s, and has not renewed its lock since %s, longer than it lasts",
			holder, verb, began, f.Held.Renewed.UTC().Format(time.RFC3339)).since(f.Held.Since)}
	}
	if f.Held.Keeps() {
		return []CheckFinding{blocks(lock.KeeperEnd, "%s has been keeping the release in place since %s", holder,
			began).since(f.Held.Since)}
	}
	return []CheckFinding{blocks("its end", "%s has been %sing the release since %s", holder, verb,
		began).since(f.Held.Since)}
}

// judgeAge is OlderVersion.
func judgeAge(f *Facts) []CheckFinding {
	newest := f.Record.Newest()
	if newest == nil || f.goesBack() {
		return nil
	}
	from, to := parse(newest.Version), parse(f.Payload.Version)
	if from == nil || to == nil || !to.LessThan(from) {
		return nil
	}
	verb, when := "was begun", newest.Started.Time
	if newest.State == record.Completed && newest.Completed != nil {
		verb, when = "was applied", newest.Completed.Time
	}
	resolution, rule := fmt.Sprintf("an update to %s or newer", from), "releases don't go back"
	previous := f.previous()
	switch {
	case previous == nil:
	case distanceOf(parse(previous.Version), from) != patch:
		rule = fmt.Sprintf("a release does not go back from one minor version to another, as to %s before it",
			printable.Line(previous.Version))
	case to.String() != parse(previous.Version).String():
		rule = fmt.Sprintf("a release only goes back to the version before it, %s", printable.Line(previous.Version))
		resolution += ", or to " + printable.Line(previous.Version)
	default:
		return nil
	}
	return []CheckFinding{blocks(resolution, "%s is older than %s, which %s at %s: %s", to, from, verb,
		when.UTC().Format(time.RFC3339), rule).since(when)}
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

// judgeContent is ChangedContent, also for a return to an earlier version. A version that was started with these
// files, because nothing was completed yet or because it was forced, may be continued.
func judgeContent(f *Facts) []CheckFinding {
	if f.goesBack() {
		return nil
	}
	if to := f.rolledBackTo(); to != nil {
		return []CheckFinding{blocks("a rollback to a version whose files are as they were",
			"the kept files of revision %d are not those that were applied", to.Revision)}
	}
	newest := f.Record.Newest()
	at := slices.IndexFunc(f.Record.History, func(e record.HistoryEntry) bool {
		return e.State == record.Completed && e.Version != "" && e.Version == f.Payload.Version
	})
	if at < 0 {
		return nil
	}
	applied := &f.Record.History[at]
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
	return []CheckFinding{blocks("a new version for the new files, or by the files that were applied", "%s",
		printable.Line(text)).since(when)}
}

// judgeHop is GiantHop. An update to a new major version must be to its first minor version, from
// any minor version of the old one.
func judgeHop(f *Facts) []CheckFinding {
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
	return []CheckFinding{blocks("an update to "+next+" first", "%s skips %s", h, next)}
}
