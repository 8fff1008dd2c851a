package pace

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
)

func TestHeapGrowthByBytesInUse(t *testing.T) {
	small := int(100*smallHeap/leastCounted) - 100
	for inUse, want := range map[uint64]int{0: small, 1 << 20: small, smallHeap / 2: 100, 20 << 20: 100, 25 << 20: 100,
		40 << 20: tightGrowth, 1 << 40: tightGrowth} {
		if got := percent(inUse, tightGrowth); got != want {
			t.Errorf("a heap with %d bytes in use may grow by %d %%, want %d %%", inUse, got, want)
		}
	}
	if got := percent(1<<40, usualGrowth); got != usualGrowth {
		t.Errorf("a large heap may usually grow by %d %%, want %d %%", got, usualGrowth)
	}
}

// afterEachCycle calls its function after each cycle of the garbage collector.
func TestAfterEachCycle(t *testing.T) {
	var rounds atomic.Int32
	afterEachCycle(func() { rounds.Add(1) })
	for want := int32(1); want < 4; want++ {
		for rounds.Load() < want {
			runtime.GC()
		}
	}
}

// The pace is set automatically, unless the user has set one.
func TestPaceIsSetFromTheStart(t *testing.T) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("GOGC or GOMEMLIMIT is set")
	}
	now := debug.SetGCPercent(usualGrowth)
	debug.SetGCPercent(now)
	if now != percent(0, usualGrowth) { // this program uses less than smallHeap
		t.Errorf("the heap may grow by %d %%, want %d %%", now, percent(0, usualGrowth))
	}
}
