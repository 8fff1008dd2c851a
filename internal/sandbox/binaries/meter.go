package binaries

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// printInterval is the time between two lines about a build: often enough to show life, seldom enough for a log.
const printInterval = 10 * time.Second

// A meter prints every few seconds how far a build is.
type meter struct {
	out     io.Writer
	began   time.Time
	ended   chan struct{}
	printer sync.WaitGroup

	mu     sync.Mutex
	format string // of the phase, with a verb for the count
	count  int
	total  int // steps of the phase; 0 if not known
	since  time.Time
}

func newMeter(out io.Writer) *meter {
	m := &meter{out: out, began: time.Now(), ended: make(chan struct{})}
	m.printer.Go(m.print)
	return m
}

// begin begins a phase of so many steps, or of an unknown number if that is 0. It returns a function that counts those
// lines of the go command which are steps of the phase, and reports whether a line is one.
func (m *meter) begin(format string, total int, isStep func(line string) bool) func(line string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.format, m.count, m.total, m.since = format, 0, total, time.Now()
	return func(line string) bool {
		if !isStep(line) {
			return false
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.count++
		return true
	}
}

// remaining estimates how long the phase will still take: its steps take about equally long.
func (m *meter) remaining() string {
	if m.count == 0 || m.count >= m.total {
		return ""
	}
	left := time.Since(m.since) * time.Duration(m.total-m.count) / time.Duration(m.count)
	return fmt.Sprintf(", about %s left", left.Round(10*time.Second))
}

// done prints how long the build took.
func (m *meter) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.out, "built in %s\n", time.Since(m.began).Round(time.Second))
}

func (m *meter) close() {
	close(m.ended)
	m.printer.Wait()
}

func (m *meter) print() {
	tick := time.NewTicker(printInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.ended:
			return
		case <-tick.C:
			m.mu.Lock()
			fmt.Fprintf(m.out, "  "+m.format+" (%s%s)\n", m.count, time.Since(m.began).Round(time.Second),
				m.remaining())
			m.mu.Unlock()
		}
	}
}
