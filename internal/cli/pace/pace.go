// Package pace says how far the heap may grow until garbage is collected, where the user has not set
// GOGC or GOMEMLIMIT.
//
// Left to itself, the garbage collector looks through a small heap over and over: twice before the
// program has even begun, as what it is made of needs that much to begin. So this package sets the
// pace by being there. Go begins with packages by the order of their paths, as soon as those that
// they need have begun: this one comes before what is below k8s.io, as long as it needs no more
// than it does.
//
// Start with Tight, for those who want to stay small.
package pace

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The heap may have that many bytes, as if all of it were in use; and by how many percent it may
// grow where that is more: as Go has it, or less.
const (
	smallHeap    = 33 << 20
	usualGrowth  = 100
	tightGrowth  = 35
	leastCounted = 4 << 20 // what counts as in use at least
)

// growth is by how many percent a heap that is not small may grow.
var growth = start()

// Tight keeps a large heap from growing by more than a third of what is in use. A limit of the
// runtime's, which stays what it is, would make it collect without end once what is in use comes
// near it.
func Tight() { growth.Store(tightGrowth) }

// start sets the pace, now and after each round of the garbage collector.
func start() *atomic.Int64 {
	var growth atomic.Int64
	growth.Store(usualGrowth)
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent(0, usualGrowth))
		afterEachRound(func() { debug.SetGCPercent(percent(inUse(), int(growth.Load()))) })
	}
	return &growth
}

// percent is by how many percent of what is in use the heap may grow.
func percent(inUse uint64, growth int) int {
	return max(growth, int(100*smallHeap/max(inUse, leastCounted))-100)
}

// inUse is how many bytes the collector has found in use.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// afterEachRound does something whenever the garbage collector has found that nothing refers to what
// this has made.
func afterEachRound(do func()) {
	type garbage struct{ _ [16]byte } // large enough to share its place with nothing else
	runtime.SetFinalizer(&garbage{}, func(*garbage) {
		do()
		afterEachRound(do)
	})
}
