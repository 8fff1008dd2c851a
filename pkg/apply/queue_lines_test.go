package apply

import (
	"slices"
	"testing"
)

// Custom resources come as soon as their definition is served, whether others are or not; what
// waits for one that is not, comes when nothing else is left.
func TestQueueKeepsToItsLines(t *testing.T) {
	served := map[int]bool{}
	q := newQueue(func(definition int) bool { return served[definition] })
	var got []int
	begin := func() {
		from := q.next()
		if from == nil {
			t.Fatal("there is nothing left after", got)
		}
		got = append(got, from.nodes[0])
		from.take()
	}
	const slow, fast = 100, 101 // definitions
	q.workloads.nodes = []int{1}
	q.customOf(slow).nodes = []int{2}
	q.customOf(fast).nodes = []int{3, 4}
	q.usual.nodes = []int{5, 6}
	begin()
	served[fast] = true
	begin()
	q.needed.nodes = []int{7}
	for range 5 {
		begin()
	}
	if want := []int{5, 3, 7, 4, 6, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("nodes begin in the order %v, want %v", got, want)
	}
	if q.next() != nil {
		t.Error("an empty queue has a next one")
	}
}
