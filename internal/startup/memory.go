package startup

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryLimit is the file with the limit of the container's memory: a number of bytes, or "max".
const memoryLimit = "/sys/fs/cgroup/memory.max"

// LimitMemory makes the garbage collector keep the process within the limit of its container.
func LimitMemory() { limitMemory(memoryLimit) }

// limitMemory makes the garbage collector keep the process within a limit, less a tenth for what the collector does not
// count. Where the file has no limit, or GOMEMLIMIT is set, nothing changes.
func limitMemory(file string) {
	text, err := os.ReadFile(file)
	if err != nil || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
