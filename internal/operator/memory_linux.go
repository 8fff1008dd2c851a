package operator

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseMemory returns memory to the system that an apply needs and keeping a release in place does not: that of the
// heap, and that of the program's code and constants, two thirds of which are not needed then. The kernel reads the
// needed pages again.
func releaseMemory() {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/smaps")
	self, _ := os.Readlink("/proc/self/exe")
	if err != nil || self == "" {
		return
	}
	var start, end uintptr
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2:
		case fields[0] == "Anonymous:" && fields[1] == "0" && start != 0: // the mapping has no changed pages
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED)
		case len(fields) >= 6:
			start, end = 0, 0
			if fields[5] == self && !strings.Contains(fields[1], "w") {
				start, end = span(fields[0])
			}
		}
	}
}

// span returns the addresses of a mapping.
func span(text string) (start, end uintptr) {
	low, high, _ := strings.Cut(text, "-")
	first, _ := strconv.ParseUint(low, 16, 64)
	last, _ := strconv.ParseUint(high, 16, 64)
	return uintptr(first), uintptr(last)
}
