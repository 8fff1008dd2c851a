package progress

import "time"

// An estimate by the rate so far is made only after a while, and while objects are still applied.
const (
	rateAfter   = 20 * time.Second
	rateOf      = 10 // objects
	rateExpires = 5 * time.Second
)

// An estimate is when an apply is expected to be over.
type estimate struct {
	end  time.Time // zero if there is none
	made time.Time
	done int       // objects that were applied, or have failed
	last time.Time // time when another one was
}

// update estimates again, once a second. The estimate moves slowly towards the new one, so that it does not jump.
func (e *estimate) update(plan Intent, p Progress, now time.Time) {
	const slowness = 6
	if done := p.Total - p.StateCounts.Left(); done != e.done {
		e.done, e.last = done, p.Now
	}
	if now.Sub(e.made) < time.Second {
		return
	}
	e.made = now
	remaining, isKnown := e.left(plan, p, now)
	switch end := now.Add(remaining); {
	case !isKnown:
		e.end = time.Time{}
	case e.end.IsZero():
		e.end = end
	default:
		e.end = e.end.Add(end.Sub(e.end) / slowness)
	}
}

// left returns how long the apply may still take.
func (e *estimate) left(plan Intent, p Progress, now time.Time) (time.Duration, bool) {
	elapsed := now.Sub(plan.Began)
	switch {
	case e.done >= p.Total && len(p.Waits) == 0:
		return 0, false
	case plan.Before > 0 && plan.InOrder:
		return leftOfLevels(p.Levels, now)
	case plan.Before > 0:
		return plan.Before - elapsed, plan.Before > elapsed
	case elapsed < rateAfter || e.done < max(rateOf, p.Total/10) || now.Sub(e.last) > rateExpires || e.done >= p.Total:
		return 0, false
	default:
		return time.Duration(float64(elapsed) * float64(p.Total-e.done) / float64(e.done)), true
	}
}

// leftOfLevels sums the last durations of the longest component of each level. There is no estimate if a component
// takes much longer than its last duration.
func leftOfLevels(levels []Level, now time.Time) (remaining time.Duration, isKnown bool) {
	const tolerance = 10 * time.Second
	for _, level := range levels {
		var longest time.Duration
		for _, component := range level.Components {
			if component.IsOver {
				continue
			}
			took := component.Before
			if component.IsRunning {
				elapsed := now.Sub(component.Began)
				if elapsed > 2*took+tolerance {
					return 0, false
				}
				took -= elapsed
			}
			longest = max(longest, took)
		}
		remaining += longest
	}
	return remaining, remaining > 0
}
