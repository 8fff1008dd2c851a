package cli

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
)

// boundMemory makes the garbage collector keep the heap near what a release needs, which is
// about three times what is known once it is loaded: else it would let it grow to twice as much
// again. That costs a tenth of the processor time, and is nothing where somebody has said how
// much there may be.
func boundMemory() {
	const least = 38 << 20 // below that, the program itself is what counts
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() == metrics.KindUint64 {
		debug.SetMemoryLimit(max(least, 3*int64(live[0].Value.Uint64())))
	}
}
