package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// logMemory logs the working set of a process's container, as the kubelet counts it, and the peak of its memory. It
// returns the memory limit of the container, in MiB.
func (s *stage) logMemory(what string, pid int) int {
	s.t.Helper()
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	s.must(err)
	usage, peak, limit, inactive := "memory.current", "memory.peak", "memory.max", "inactive_file"
	folder := regexp.MustCompile(`(?m)^0::(.*)$`).FindStringSubmatch(string(groups))
	root := "/sys/fs/cgroup"
	if first := regexp.MustCompile(`(?m)^\d+:memory:(.*)$`).FindStringSubmatch(string(groups)); first != nil {
		usage, peak, limit, inactive = "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes",
			"total_inactive_file"
		folder, root = first, "/sys/fs/cgroup/memory"
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, folder[1], file))
		s.must(err)
		return strings.TrimSpace(string(text))
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		s.must(err)
		return n >> 20
	}
	file := regexp.MustCompile(`(?m)^` + inactive + ` (\d+)$`).FindStringSubmatch(read("memory.stat"))
	s.t.Logf("%s has a working set of %d MiB, and had %d MiB at most", what, number(read(usage))-number(file[1]),
		number(read(peak)))
	return number(read(limit))
}
