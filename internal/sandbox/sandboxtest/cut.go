package sandboxtest

import (
	"errors"
	"net/http"
	"strings"
	"sync"
)

// A ConnectionCut cuts a program off the API server at one of its writes, as if the program had died: from then on no
// request arrives. Its method Check is for Before. Events, statuses and Leases are no writes.
type ConnectionCut struct {
	mu     sync.Mutex
	isCut  func(write string) bool
	missed string // the write that did not arrive; empty if all have
}

// NewCut returns a connection that is cut at the write of that number.
func NewCut(at int) *ConnectionCut {
	left := at
	return &ConnectionCut{isCut: func(string) bool {
		left--
		return left == 0
	}}
}

// Missed returns the write that did not arrive; empty if all have.
func (c *ConnectionCut) Missed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missed
}

// Check fails a request that does not arrive.
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

// WriteCuts are those of the lives of a program that dies at each of its writes: a write arrives only if a life before
// was cut off at the same one, by its method, its path, and how many like it have arrived.
type WriteCuts struct {
	mu              sync.Mutex
	missed, arrived map[string]int
}

// Next returns the connection of the next life.
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
