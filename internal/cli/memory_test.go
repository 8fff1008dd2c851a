package cli

import (
	"runtime"
	"sync/atomic"
	"testing"
)

func TestHeapGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 700, 1 << 20: 700, 8 << 20: 300, 16 << 20: 100, 30 << 20: growthPercent, 1 << 40: growthPercent} {
		if got := heapGrowth(live); got != want {
			t.Errorf("a heap of %d bytes may grow by %d %%, want %d %%", live, got, want)
		}
	}
}

// What is done after a round of the garbage collector is done after each.
func TestAfterEachRound(t *testing.T) {
	var rounds atomic.Int32
	afterEachRound(func() { rounds.Add(1) })
	for before := int32(0); before < 4; before++ { // at once, and then after each
		for rounds.Load() <= before {
			runtime.GC()
		}
	}
}
