package precondition

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
)

// judgeLock is ApplyRunning. That a process died while holding the lock stops no update: the
// next apply takes it over.
func judgeLock(f *Facts) []CheckFinding {
	if f.Held == nil {
		return nil
	}
	holder, began := printable.Line(f.Held.Name), f.Held.Since.UTC().Format(time.RFC3339)
	if f.Held.IsDead(f.Now) {
		return []CheckFinding{warns("the next apply, which takes the lock over", "%s began to apply the release at %s, and has given no sign of life for %s, longer than its lock lasts",
			holder, began, age(f.Now.Sub(f.Held.Renewed))).since(f.Held.Since)}
	}
	return []CheckFinding{blocks("its end", "%s has been applying the release since %s (%s ago)",
		holder, began, age(f.Now.Sub(f.Held.Since))).since(f.Held.Since)}
}

func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// judgeAge is OlderVersion.
func judgeAge(f *Facts) []CheckFinding {
	newest := f.Record.Newest()
	if newest == nil {
		return nil
	}
	from, to := parse(newest.Version), parse(f.Payload.Version)
	if from == nil || to == nil || !to.LessThan(from) {
		return nil
	}
	how, when := "was begun", newest.Started.Time
	if newest.State == record.Completed && newest.Completed != nil {
		how, when = "was applied", newest.Completed.Time
	}
	return []CheckFinding{blocks(fmt.Sprintf("an update to %s or newer", from), "%s is older than %s, which %s at %s: releases don't go back",
		to, from, how, when.UTC().Format(time.RFC3339)).since(when)}
}

// judgeContent is ChangedContent. A version that was begun with these files, because nothing was
// completed yet or because it was forced, may be gone on with.
func judgeContent(f *Facts) []CheckFinding {
	applied, newest := f.Record.Applied(), f.Record.Newest()
	isKnown := applied != nil && applied.Version != "" && applied.Content != ""
	if !isKnown || applied.Version != f.Payload.Version || applied.Content == f.Payload.Content {
		return nil
	}
	if newest.Version == f.Payload.Version && newest.Content == f.Payload.Content {
		return nil
	}
	when := applied.Started.Time
	if applied.Completed != nil {
		when = applied.Completed.Time
	}
	text := fmt.Sprintf("the files of %s are not those that were applied as %[1]s at %s", applied.Version, when.UTC().Format(time.RFC3339))
	if applied.Source != "" {
		text += " from " + applied.Source
	}
	return []CheckFinding{blocks("a new version for the new files, or by the files that were applied", "%s", printable.Line(text)).since(when)}
}

// judgeHop is GiantHop. A new major version is entered by its first minor one, from
// whichever the last was.
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
