package progress

import "time"

// An estimate by the rate so far is made only after a while, and while objects are still applied.
const (
	rateAfter   = 20 * time.Second
	rateOf      = 10 // objects
	rateExpires = 5 * time.Second
)

// estimate estimates again when the apply is over, once a second. The estimate moves slowly towards the new one,
// so that it does not jump.
func (f *Fold) estimate() {
	const slowness = 6
	if f.now.Sub(f.estimated) < time.Second {
		return
	}
	f.estimated = f.now
	left, isKnown := f.left()
	switch end := f.now.Add(left); {
	case !isKnown:
		f.end = time.Time{}
	case f.end.IsZero():
		f.end = end
	default:
		f.end = f.end.Add(end.Sub(f.end) / slowness)
	}
}

// left returns how long the apply may still take.
func (f *Fold) left() (time.Duration, bool) {
	elapsed, total := f.now.Sub(f.plan.Began), len(f.plan.Items)
	switch {
	case f.applied >= total && len(f.waits) == 0:
		return 0, false
	case f.plan.Before > 0 && f.plan.InOrder:
		return f.leftOfLevels()
	case f.plan.Before > 0:
		return f.plan.Before - elapsed, f.plan.Before > elapsed
	case elapsed < rateAfter || f.applied < max(rateOf, total/10) || f.now.Sub(f.last) > rateExpires || f.applied >= total:
		return 0, false
	default:
		return time.Duration(float64(elapsed) * float64(total-f.applied) / float64(f.applied)), true
	}
}

// leftOfLevels sums what the longest node of each level took the last time. There is no estimate if a node takes
// much longer than that.
func (f *Fold) leftOfLevels() (left time.Duration, isKnown bool) {
	const tolerance = 10 * time.Second
	for _, l := range f.levels {
		var longest time.Duration
		for _, n := range l.nodes {
			if n.isOver {
				continue
			}
			took := f.plan.Nodes[n.name]
			if n.isRunning {
				elapsed := f.now.Sub(n.began)
				if elapsed > 2*took+tolerance {
					return 0, false
				}
				took -= elapsed
			}
			longest = max(longest, took)
		}
		left += longest
	}
	return left, left > 0
}
