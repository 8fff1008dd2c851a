package binaries

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// printInterval is the time between two lines about a build: short enough for a user, long enough for a log.
const printInterval = 10 * time.Second

// A meter prints the progress of a build or of a download every few seconds.
type meter struct {
	out     io.Writer
	began   time.Time
	ended   chan struct{}
	printer sync.WaitGroup

	mu     sync.Mutex
	format string // text of the phase, with a verb for the count
	count  int
	total  int // steps of the phase; 0 if unknown
	since  time.Time
}

func newMeter(out io.Writer) *meter {
	m := &meter{out: out, began: time.Now(), ended: make(chan struct{})}
	m.printer.Go(m.print)
	return m
}

// begin begins a phase with a number of steps, or 0 if the number is unknown. The returned function reports whether a
// line of the go command is a step of the phase, and counts the steps.
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

func (m *meter) set(count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count = count
}

// remaining estimates the remaining time of the phase, whose steps take about the same time.
func (m *meter) remaining() string {
	if m.count == 0 || m.count >= m.total {
		return ""
	}
	duration := time.Since(m.since) * time.Duration(m.total-m.count) / time.Duration(m.count)
	return fmt.Sprintf(", about %s left", duration.Round(10*time.Second))
}

// done prints how long it took until the programs were built or downloaded.
func (m *meter) done(result string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.out, "%s in %s\n", result, time.Since(m.began).Round(time.Second))
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
