package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
)

const (
	// searchedLogBytes bounds how much of a log's end is searched for a cause: a
	// program that panics says why well before its last line.
	searchedLogBytes = 64 << 10
	// quotedLogLines and quotedLineBytes bound what an error quotes of it.
	quotedLogLines  = 6
	quotedLineBytes = 400
)

// startError explains why a program could not be started at all.
func startError(c *component, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("start %s: %s may not be run: make it executable, or move it off a disk mounted noexec", c.name, c.program)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("start %s: %s is not a program for this machine; put the right one in its place, or unset KUBEBUILDER_ASSETS", c.name, c.program)
	default:
		return fmt.Errorf("start %s: %w", c.name, err)
	}
}

// errPortTaken marks the one way to fail that another try may mend.
var errPortTaken = errors.New("another program took its port")

// deathError says that a component ended by itself, and what it said last.
func (c *component) deathError() error {
	end := c.logEnd()
	said := "    " + strings.Join(lastWords(end), "\n    ")
	switch {
	case strings.Contains(end, "address already in use"):
		return fmt.Errorf("%s: %w\n%s", c.name, errPortTaken, said)
	case strings.Contains(end, "no space left on device"):
		return fmt.Errorf("%s ended: no space left on the disk of %s; free some, or set XDG_CACHE_HOME to a folder on another disk\n%s", c.name, c.log, said)
	default:
		return fmt.Errorf("%s ended by itself; its last lines (all of them: %s):\n%s", c.name, c.log, said)
	}
}

// logEnd returns the end of the component's log.
func (c *component) logEnd() string {
	log, err := os.Open(c.log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer log.Close()
	if info, err := log.Stat(); err == nil && info.Size() > searchedLogBytes {
		_, _ = log.Seek(-searchedLogBytes, io.SeekEnd)
	}
	end, _ := io.ReadAll(io.LimitReader(log, searchedLogBytes))
	return string(end)
}

// lastWords picks the lines worth quoting: the last ones, or those before the
// stack trace of a panic.
func lastWords(log string) []string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if panicked := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "panic: ") }); panicked >= 0 {
		lines = lines[:panicked+1]
	}
	lines = lines[max(0, len(lines)-quotedLogLines):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), quotedLineBytes)]
	}
	return lines
}
