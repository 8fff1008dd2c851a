package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/runlevel/runlevel/internal/sandbox/binaries"
)

const (
	// searchedLogBytes bounds how much of a log's end is searched for a cause: the
	// message of a panic is well before the last line.
	searchedLogBytes = 64 << 10
	// quotedLogLines and quotedLineBytes bound the quote of the log in an error.
	quotedLogLines  = 6
	quotedLineBytes = 400
)

// ErrOptions marks an error in the options that Start was given, the files that
// they name included. Nothing was started.
var ErrOptions = errors.New("wrong options")

// errStopped is the error of all operations after Stop.
var errStopped = errors.New("the sandbox has been stopped")

// errPortTaken marks the only failure that another try may fix.
var errPortTaken = errors.New("another program took its port; try again")

// startError explains why a program could not be started.
func startError(c *component, err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("start %s: %s may not be run: make it executable, or move it off a disk mounted noexec",
			c.name, c.program)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("start %s: %s is not a program for this machine; put the right one in its place, or unset %s",
			c.name, c.program, binaries.AssetsVariable)
	default:
		return fmt.Errorf("start %s: %w", c.name, err)
	}
}

// exitError returns the error about a process that ended by itself, with its exit status and last log lines.
func (c *component) exitError(p *process) error {
	end := c.logEnd(p)
	switch {
	case strings.Contains(end, "address already in use"):
		return fmt.Errorf("%s: %w\n%s", c.name, errPortTaken, lastLines(end))
	case strings.Contains(end, "no space left on device"):
		return fmt.Errorf("%w\n%s", binaries.Explain(c.name+" ended", syscall.ENOSPC), lastLines(end))
	default:
		how := "exit status 0"
		if p.err != nil {
			how = p.err.Error()
		}
		return fmt.Errorf("%s ended by itself (%s); its last lines (all of them: %s):\n%s", c.name, how, c.log,
			lastLines(end))
	}
}

// withLog adds the last lines of the component's log to an error.
func (c *component) withLog(err error) error {
	p := c.current()
	if err == nil || p == nil {
		return err
	}
	return fmt.Errorf("%w; the last lines of %s (all of them: %s):\n%s", err, c.name, c.log, lastLines(c.logEnd(p)))
}

// withCRIError adds to an error why containerd has not loaded its CRI service: the errors of the service's plugins in
// the log.
func (c *component) withCRIError(err error) error {
	p := c.current()
	if p == nil {
		return err
	}
	log, advice := c.logEnd(p), ""
	var errs []string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "failed to load plugin") && strings.Contains(line, ".cri") {
			errs = append(errs, line)
		}
	}
	if len(errs) > 0 {
		log = strings.Join(errs, "")
	}
	if strings.Contains(log, "fsnotify watcher: too many open files") {
		advice = `raise the limit of inotify instances, as in "sysctl fs.inotify.max_user_instances=1024"; `
	}
	return fmt.Errorf("%w: %sthe error of %s (all of its log: %s):\n%s", err, advice, c.name, c.log, lastLines(log))
}

// logEnd returns the end of a process's log.
func (c *component) logEnd(p *process) string {
	log, err := os.Open(c.log)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer log.Close()
	from := p.logged
	if info, err := log.Stat(); err == nil {
		from = max(from, info.Size()-searchedLogBytes)
	}
	end, _ := io.ReadAll(io.NewSectionReader(log, from, searchedLogBytes))
	return string(end)
}

// lastLines returns the lines of a log that an error quotes: the last ones, or those before the
// stack trace of a panic.
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
