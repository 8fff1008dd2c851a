package apply

import (
	"slices"
	"testing"
)

// Custom resources come as soon as they may, workloads when nothing else is left, and what waits
// for a definition only then, too.
func TestQueueKeepsToItsLanes(t *testing.T) {
	isServed := false
	kinds := []lane{workloadLane, customLane, usualLane, customLane, usualLane, usualLane}
	q := &queue{laneOf: func(node int) lane { return kinds[node] }, mayBegin: func(int) bool { return isServed }}
	var got []int
	take := func() {
		next, hasNext := q.next()
		if !hasNext {
			t.Fatal("there is nothing left after", got)
		}
		got = append(got, next)
		q.drop()
	}
	q.add([]int{0, 1, 2, 3, 4})
	take()
	isServed = true
	take()
	isServed = false
	q.add([]int{5})
	for range 4 {
		take()
	}
	if want := []int{2, 1, 4, 5, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("nodes begin in the order %v, want %v", got, want)
	}
	if _, hasNext := q.next(); hasNext {
		t.Error("an empty queue has a next one")
	}
}
