package sandboxtest

import (
	"errors"
	"net/http"
	"strings"
	"sync"
)

// A ConnectionCut disconnects a program from the API server at one of its writes, as if the program had crashed: no
// later request arrives. Its method Check is an argument of Before. Events, statuses and Leases do not count as
// writes.
type ConnectionCut struct {
	mu     sync.Mutex
	isCut  func(write string) bool
	missed string // the write that did not arrive, or empty
}

// NewCut returns a ConnectionCut that cuts the connection at the write with this number.
func NewCut(write int) *ConnectionCut {
	return &ConnectionCut{isCut: func(string) bool {
		write--
		return write == 0
	}}
}

// Missed returns the write that did not arrive, or "".
func (c *ConnectionCut) Missed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// Check returns an error for a request that does not arrive.
func (c *ConnectionCut) Check(r *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	write := r.Method + " " + r.URL.Path
	isWrite := r.Method != http.MethodGet && !strings.Contains(write, "/events") &&
		!strings.HasSuffix(write, "/status") && !strings.Contains(write, "/leases")
	if isWrite && c.missed == "" && c.isCut(write) {
		c.missed = write
	}
	if c.missed != "" {
		return errors.New("the connection is cut")
	}
	return nil
}

// WriteCuts are the connections of a program that crashes at each of its writes and is started again. A write arrives
// only if the same write has been cut before. Two writes are the same if they have the same method, path, and number
// of equal writes before.
type WriteCuts struct {
	mu              sync.Mutex
	missed, arrived map[string]int
}

// Next returns the connection of the next run of the program.
func (w *WriteCuts) Next() *ConnectionCut { return &ConnectionCut{isCut: w.isCut} }

func (w *WriteCuts) isCut(write string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missed == nil {
		w.missed, w.arrived = map[string]int{}, map[string]int{}
	}
	if w.missed[write] <= w.arrived[write] {
		w.missed[write]++
		return true
	}
	w.arrived[write]++
	return false
}
