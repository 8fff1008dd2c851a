package binaries

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// sayAgain is how often a meter that does not write to a terminal says
// something: often enough to show life, seldom enough for a log.
const sayAgain = 10 * time.Second

// A meter shows how far a build is: on a terminal in one line that changes, else
// in a line every now and then.
type meter struct {
	out      io.Writer
	terminal bool
	began    time.Time
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu     sync.Mutex
	status func() string // what to show now
}

func newMeter(out io.Writer) *meter {
	file, ok := out.(*os.File)
	m := &meter{
		out: out, terminal: ok && term.IsTerminal(int(file.Fd())),
		began: time.Now(), stop: make(chan struct{}),
		status: func() string { return "" },
	}
	m.stopped.Go(m.show)
	return m
}

// downloading counts the modules that the go command says it downloads.
func (m *meter) downloading() func(line string) bool {
	count := 0
	m.set(func() string {
		if count == 0 {
			return "looking at the modules"
		}
		return fmt.Sprintf("downloading modules: %d", count)
	})
	return func(line string) bool {
		if !strings.HasPrefix(line, "go: downloading ") {
			return false
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		count++
		return true
	}
}

// compiling counts the packages that the go command says it compiles. What it
// says otherwise has a space or a colon in it.
func (m *meter) compiling(total int) func(line string) bool {
	count := 0
	m.set(func() string {
		if count >= total-1 { // the program itself counts as one, and is what is linked
			return fmt.Sprintf("linking, %d packages compiled", count)
		}
		return fmt.Sprintf("compiling: %d of %d packages", count, total)
	})
	return func(line string) bool {
		if strings.ContainsAny(line, " :") {
			return false
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		count++
		return true
	}
}

func (m *meter) set(status func() string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

// done says how long it took.
func (m *meter) done() {
	m.close()
	fmt.Fprintf(m.out, "built in %s\n", time.Since(m.began).Round(time.Second))
}

// close ends the showing. It may be called again.
func (m *meter) close() {
	m.mu.Lock()
	select {
	case <-m.stop:
	default:
		close(m.stop)
	}
	m.mu.Unlock()
	m.stopped.Wait()
}

func (m *meter) show() {
	interval := sayAgain
	if m.terminal {
		interval = time.Second / 5
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			if m.terminal {
				fmt.Fprint(m.out, "\r\x1b[K")
			}
			return
		case <-tick.C:
			m.line()
		}
	}
}

func (m *meter) line() {
	m.mu.Lock()
	defer m.mu.Unlock()
	text := fmt.Sprintf("  %s (%s)", m.status(), time.Since(m.began).Round(time.Second))
	if m.terminal {
		fmt.Fprint(m.out, "\r\x1b[K"+text)
	} else {
		fmt.Fprintln(m.out, text)
	}
}
