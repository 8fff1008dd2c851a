package manager_test

import (
	"slices"
	"time"
)

// A span is the time between two moments. A request has a span, because it took effect at an unknown time between its
// receipt and its answer.
type span struct{ Begin, End time.Time }

// isWithin reports that the whole of a span is in another one.
func (s span) isWithin(other span) bool {
	return !s.Begin.Before(other.Begin) && !s.End.After(other.End)
}

// A recorded object is one as a request made it.
type recorded[T any] struct {
	span
	Object *T     // nil after its deletion
	By     string // the user agent
}

// A timeline contains the states of an object over time, as far as the audit log shows them.
type timeline[T any] struct {
	States []recorded[T] // the states in their order
	// Unsure are the requests to write it of which the log does not report whether they were done.
	Unsure []span
}

// add adds the state that results from a write of the object.
func (t *timeline[T]) add(request auditedRequest, state recorded[T]) {
	switch {
	case request.isDone():
		t.States = append(t.States, state)
	case request.isUnsure():
		t.Unsure = append(t.Unsure, request.span())
	}
}

// during returns when an object surely was as wanted: from the end of the request that made it so to the beginning of
// the first one that made it otherwise, or may have.
func (t *timeline[T]) during(isWanted func(*T) bool) []span {
	var spans []span
	for i, state := range t.States {
		if !isWanted(state.Object) {
			continue
		}
		now := span{Begin: state.End, End: endOfTime}
		if i+1 < len(t.States) {
			now.End = t.States[i+1].Begin
		}
		for _, unsure := range t.Unsure {
			if unsure.End.After(now.Begin) && unsure.Begin.Before(now.End) {
				now.End = unsure.Begin
			}
		}
		wasWanted := i > 0 && isWanted(t.States[i-1].Object)
		if last := len(spans) - 1; wasWanted && last >= 0 && spans[last].End.Equal(state.Begin) {
			spans[last].End = now.End // it was so while the request was under way, too
			continue
		}
		if now.Begin.Before(now.End) {
			spans = append(spans, now)
		}
	}
	return spans
}

// endOfTime is later than all tests.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// firstWhen returns the first request that left the object as wanted.
func (t *timeline[T]) firstWhen(isWanted func(*T) bool) (recorded[T], bool) {
	i := slices.IndexFunc(t.States, func(s recorded[T]) bool { return isWanted(s.Object) })
	if i < 0 {
		return recorded[T]{}, false
	}
	return t.States[i], true
}

// mayBe reports whether the object is as wanted, as far as the log reports: its last state is, or may not be the last.
func (t *timeline[T]) mayBe(isWanted func(*T) bool) bool {
	last := recorded[T]{}
	if len(t.States) > 0 {
		last = t.States[len(t.States)-1]
	}
	isKnown := !slices.ContainsFunc(t.Unsure, func(unsure span) bool { return unsure.End.After(last.End) })
	return !isKnown || len(t.States) > 0 && isWanted(last.Object)
}
