package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// What the garbage collector is told, where nobody has set GOGC or GOMEMLIMIT: the heap may
// have that many bytes, as if it were all in use; and a heap that does not fit in may grow by a fifth.
// Left to itself it would look through a small heap over and over, and let a large one double.
const (
	smallHeap     = 32 << 20
	growthPercent = 20
)

// paceCollector has the garbage collector told after each of its rounds how far the heap may
// grow until the next. A limit of the runtime's, which stays what it is, would make it run
// without end once what is in use comes near it.
var paceCollector = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		afterEachRound(func() { debug.SetGCPercent(heapGrowth(liveHeap())) })
	}
})

// heapGrowth is by how many percent of what is in use the heap may grow.
func heapGrowth(live uint64) int {
	const least = 4 << 20 // as of which the runtime counts, and what there is before the first round
	return max(growthPercent, int(100*smallHeap/max(live, least))-100)
}

// liveHeap is how many bytes the collector has found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// afterEachRound does something now, and whenever the garbage collector has found that nobody
// holds what this has made.
func afterEachRound(do func()) {
	type garbage struct{ _ [16]byte } // large enough to share its place with nothing else
	do()
	runtime.SetFinalizer(&garbage{}, func(*garbage) { afterEachRound(do) })
}
