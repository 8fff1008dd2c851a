// Package pace sets how far the heap may grow until garbage is collected, unless the user has set
// GOGC or GOMEMLIMIT.
//
// By default, the garbage collector scans a small heap very often: twice before main begins, as the
// initialization of the imported packages allocates that much. So this package sets the pace when it
// is initialized. Go initializes packages in the order of their paths, as soon as their imports are
// initialized: this package comes before those below k8s.io, as long as it has no further imports.
//
// Tight is the call to start from, for programs that have to stay small.
package pace

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The heap may grow to smallHeap bytes without a collection, or by a percentage if this is more:
// the percentage of Go, or a smaller one.
const (
	smallHeap    = 30 << 20
	usualGrowth  = 100
	tightGrowth  = 25
	leastCounted = 4 << 20 // the lower bound of bytes in use
)

// growth is the percentage by which a large heap may grow.
var growth = start()

// Tight keeps a large heap from growing by more than a third of the bytes in use. A memory limit of
// the runtime would not do: it makes the runtime collect without end once the bytes in use come near
// it.
func Tight() { growth.Store(tightGrowth) }

// start sets the pace, now and after each cycle of the garbage collector.
func start() *atomic.Int64 {
	var growth atomic.Int64
	growth.Store(usualGrowth)
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent(0, usualGrowth))
		afterEachRound(func() { debug.SetGCPercent(percent(inUse(), int(growth.Load()))) })
	}
	return &growth
}

// percent returns the percentage of the bytes in use by which the heap may grow.
func percent(inUse uint64, growth int) int {
	return max(growth, int(100*smallHeap/max(inUse, leastCounted))-100)
}

// inUse returns the number of bytes that the last cycle has found in use.
func inUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// afterEachRound calls a function after each cycle of the garbage collector, when the collector has
// found an object without references.
func afterEachRound(do func()) {
	type garbage struct{ _ [16]byte } // too large for the tiny allocator
	runtime.SetFinalizer(&garbage{}, func(*garbage) {
		do()
		afterEachRound(do)
	})
}
