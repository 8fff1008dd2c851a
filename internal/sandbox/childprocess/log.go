package childprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

const (
	// searchedLogBytes limits the part of a log's end that is searched for a cause: the message of a panic can be far
	// from the last line.
	searchedLogBytes = 64 << 10
	// quotedLogLines and quotedLineBytes limit the quote of the log in an error.
	quotedLogLines  = 6
	quotedLineBytes = 400
)

// ErrPortTaken marks the only failure that another attempt may fix.
var ErrPortTaken = errors.New("another program took its port; try again")

// startError adds the remedy to the error of a program that could not be started.
func (c *Component) startError(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("start %s: %s may not be run: make it executable, or move it off a disk mounted noexec",
			c.Name, c.Program)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("start %s: %s is not a program for this machine; put the right one in its place, or unset %s",
			c.Name, c.Program, binaries.AssetsVariable)
	default:
		return fmt.Errorf("start %s: %w", c.Name, err)
	}
}

// exitError returns the error for a process that exited by itself, with its exit status and last log lines.
func (c *Component) exitError(p *process) error {
	log := c.logEnd(p)
	switch {
	case strings.Contains(log, "address already in use"):
		return fmt.Errorf("%s: %w\n%s", c.Name, ErrPortTaken, lastLines(log))
	case strings.Contains(log, "no space left on device"):
		return fmt.Errorf("%w\n%s", binaries.Explain(c.Name+" exited", syscall.ENOSPC), lastLines(log))
	default:
		status := "exit status 0"
		if p.err != nil {
			status = p.err.Error()
		}
		return fmt.Errorf("%s exited unexpectedly (%s); its last lines (whole log: %s):\n%s",
			c.Name, status, c.Log, lastLines(log))
	}
}

// WithLog adds the last lines of the component's log to an error.
func (c *Component) WithLog(err error) error {
	if p := c.process(); p != nil && err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w; the last lines of %s (whole log: %s):\n%s", err, c.Name, c.Log, lastLines(c.logEnd(p)))
	}
	return err
}

// LogLines returns the last log lines of the running process for which isWanted returns true, or simply the last lines
// if there are none. The lines have the format of quotes in errors.
func (c *Component) LogLines(isWanted func(line string) bool) string {
	p := c.process()
	if p == nil {
		return ""
	}
	log := c.logEnd(p)
	var wanted strings.Builder
	for line := range strings.Lines(log) {
		if isWanted(line) {
			wanted.WriteString(line)
		}
	}
	if wanted.Len() > 0 {
		log = wanted.String()
	}
	return lastLines(log)
}

// logEnd returns the end of a process's log.
func (c *Component) logEnd(p *process) string {
	log, err := os.Open(c.Log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer log.Close()
	offset := p.logOffset
	if info, err := log.Stat(); err == nil {
		offset = max(offset, info.Size()-searchedLogBytes)
	}
	end, _ := io.ReadAll(io.NewSectionReader(log, offset, searchedLogBytes))
	return string(end)
}

// lastLines returns the lines of a log that an error quotes: the last ones, or those before the stack trace of a panic.
func lastLines(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") {
			lines = lines[:i+1]
			break
		}
	}
	var quoted strings.Builder
	for _, line := range lines[max(0, len(lines)-quotedLogLines):] {
		quoted.WriteString("    " + line[:min(len(line), quotedLineBytes)] + "\n")
	}
	return strings.TrimSuffix(quoted.String(), "\n")
}
