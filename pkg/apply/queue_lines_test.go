package apply

import (
	"slices"
	"testing"
)

// What others need comes first, then what has begun, and workloads come last.
func TestQueueKeepsToItsLines(t *testing.T) {
	q := &queue{}
	q.workloads.add(1)
	q.usual.add(2, 3)
	q.custom.add(4)
	var got []int
	take := func() {
		if step, isThere := q.take(); isThere {
			got = append(got, step)
		}
	}
	take()
	q.needed.add(5)
	q.continued.add(6)
	for range 6 {
		take()
	}
	if want := []int{4, 5, 6, 2, 3, 1}; !slices.Equal(got, want) {
		t.Errorf("steps begin in the order %v, want %v", got, want)
	}
}
