package startup

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory makes the garbage collector keep the process within the memory limit of its container, less a tenth for memory
// that the collector does not count. The limit is in a file: a number of bytes, or "max". Without a limit, or if GOMEMLIMIT
// is set, nothing changes.
func limitMemory(file string) {
	text, err := os.ReadFile(file)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
