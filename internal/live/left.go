package live

import (
	"fmt"
	"time"
)

// How long it takes is worth a guess by the rate so far only after a while, and while
// something happens.
const (
	rateAfter   = 20 * time.Second
	rateOf      = 10 // objects
	rateExpires = 5 * time.Second
)

// reckon guesses anew when it is over, once a second. A guess moves slowly to where the next
// one says, so that nobody sees it jump.
func (m *Model) reckon() {
	const slowness = 6
	if m.now.Sub(m.told) < time.Second {
		return
	}
	m.told = m.now
	left, isKnown := m.left()
	switch end := m.now.Add(left); {
	case !isKnown:
		m.end = time.Time{}
	case m.end.IsZero():
		m.end = end
	default:
		m.end = m.end.Add(end.Sub(m.end) / slowness)
	}
}

// left is how long it may still take.
func (m *Model) left() (time.Duration, bool) {
	elapsed, total := m.now.Sub(m.plan.Began), len(m.plan.Items)
	switch {
	case m.done >= total && len(m.waits) == 0:
		return 0, false
	case m.plan.Earlier > 0 && m.plan.InOrder:
		return m.leftOfLevels()
	case m.plan.Earlier > 0:
		return m.plan.Earlier - elapsed, m.plan.Earlier > elapsed
	case elapsed < rateAfter || m.done < max(rateOf, total/10) || m.now.Sub(m.lastDone) > rateExpires || m.done >= total:
		return 0, false
	default:
		return time.Duration(float64(elapsed) * float64(total-m.done) / float64(m.done)), true
	}
}

// leftOfLevels adds up what the levels took the last time: the longest node of each. Where
// one takes much longer now, nothing can be said.
func (m *Model) leftOfLevels() (left time.Duration, isKnown bool) {
	const patience = 10 * time.Second
	for _, l := range m.levels {
		var longest time.Duration
		for _, n := range l.nodes {
			if n.isOver {
				continue
			}
			took := m.plan.Nodes[n.name]
			if n.isRunning {
				elapsed := m.now.Sub(n.began)
				if elapsed > 2*took+patience {
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

// leftInWords says how long it may still take; "" if that is not known, or not worth a word.
func (m *Model) leftInWords() string {
	left := m.end.Sub(m.now)
	if m.end.IsZero() || left < 3*time.Second {
		return ""
	}
	step := 5 * time.Second
	switch {
	case left > 10*time.Minute:
		step = time.Minute
	case left > time.Minute:
		step = 10 * time.Second
	}
	return "about " + clock(max(left.Round(step), step)) + " left"
}

// clock is a duration in few letters: 42s, 3m07s, 2h05m.
func clock(d time.Duration) string {
	seconds := int(max(d, 0).Seconds())
	switch minutes := seconds / 60; {
	case minutes == 0:
		return fmt.Sprintf("%ds", seconds)
	case minutes < 60:
		return fmt.Sprintf("%dm%02ds", minutes, seconds%60)
	default:
		return fmt.Sprintf("%dh%02dm", minutes/60, minutes%60)
	}
}
