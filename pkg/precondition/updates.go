package precondition

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runlevel/runlevel/pkg/printable"
	"github.com/runlevel/runlevel/pkg/record"
)

// judgeLock is ApplyRunning. That somebody died while holding the lock stops nobody: the
// next apply takes it over.
func judgeLock(f *Facts) []Finding {
	if f.Held == nil {
		return nil
	}
	holder, began := printable.Line(f.Held.Holder), f.Held.Since.UTC().Format(time.RFC3339)
	if f.Held.IsDead(f.Now) {
		return []Finding{warns("the next apply, which takes the lock over", "%s began to apply the release at %s, and has given no sign of life for %s, longer than its lock lasts",
			holder, began, age(f.Now.Sub(f.Held.Renewed))).since(f.Held.Since)}
	}
	return []Finding{blocks("its end, which --wait-lock waits for", "%s has been applying the release since %s (%s ago)",
		holder, began, age(f.Now.Sub(f.Held.Since))).since(f.Held.Since)}
}

func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// judgeAge is OlderVersion.
func judgeAge(f *Facts) []Finding {
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
	return []Finding{blocks(fmt.Sprintf("an update to %s or newer", from), "%s is older than %s, which %s at %s: releases don't go back",
		to, from, how, when.UTC().Format(time.RFC3339)).since(when)}
}

// judgeHop is GiantHop. A new major version is entered by its first minor one, from
// whichever the last was.
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
	return []Finding{blocks("an update to "+next+" first", "%s skips %s", h, next)}
}
