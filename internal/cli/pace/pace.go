// Package pace sets the size to which the heap may grow before garbage is collected, unless the user has set GOGC or
// GOMEMLIMIT.
//
// By default, the garbage collector scans a small heap very often: the initialization of the imported packages alone
// causes two collections before main begins. So this package sets the pace when it is initialized. Go initializes
// packages in the order of their paths, as soon as their imports are initialized: this package is initialized before
// those below k8s.io, as long as it has no further imports.
//
// LimitGrowth is for programs that must use little memory. Start with LimitGrowth.
package pace

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// The heap may grow to smallHeap bytes without a collection, or by a percentage if that is more: usualGrowth, which is
// Go's default, or tightGrowth. Up to roomyHeap, growth is always usual: collections of a heap far below its peak would
// cost time and save nothing.
const (
	smallHeap    = 22 << 20
	roomyHeap    = 50 << 20
	usualGrowth  = 100
	tightGrowth  = 25
	leastCounted = 4 << 20 // the lower bound of bytes in use
)

// growth is the percentage by which a large heap may grow.
var growth = start()

// LimitGrowth limits the growth of a heap above 50 MiB to a quarter of the bytes in use. A memory limit of the
// runtime is no replacement: when the bytes in use come near a limit, the runtime collects without end.
func LimitGrowth() { growth.Store(tightGrowth) }

// start sets the pace, now and after each cycle of the garbage collector.
func start() *atomic.Int64 {
	var growth atomic.Int64
	growth.Store(usualGrowth)
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(percent(0, usualGrowth))
		afterEachCycle(func() { debug.SetGCPercent(percent(inUse(), int(growth.Load()))) })
	}
	return &growth
}

// percent returns the percentage of the bytes in use by which the heap may grow.
func percent(inUse uint64, growth int) int {
	inUse = max(inUse, leastCounted)
	unchecked := max(smallHeap, min(2*inUse, roomyHeap))
	return max(growth, int(100*unchecked/inUse)-100)
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

// afterEachCycle calls a function after each cycle of the garbage collector: each cycle finalizes an object without
// references.
func afterEachCycle(do func()) {
	type garbage struct{ _ [16]byte } // too large for the tiny allocator
	runtime.SetFinalizer(&garbage{}, func(*garbage) {
		do()
		afterEachCycle(do)
	})
}
