package sandboxtest

import (
	"errors"
	"net/http"
	"strings"
	"sync"
)

// A ConnectionCut cuts a program off the API server at one of its writes, as if the program had died: from then on no request
// arrives. Its method Check is for Before.
type ConnectionCut struct {
	mu     sync.Mutex
	left   int    // writes that arrive
	missed string // the write that did not arrive; empty if all have
}

// NewCut returns a connection that is cut at the write of that number. Events and statuses are no writes.
func NewCut(at int) *ConnectionCut { return &ConnectionCut{left: at - 1} }

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
	isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.HasSuffix(r.URL.Path, "/status")
	if isWrite && c.left == 0 && c.missed == "" {
		c.missed = r.Method + " " + r.URL.Path
	}
	if isWrite {
		c.left--
	}
	if c.missed != "" {
		return errors.New("the connection is cut")
	}
	return nil
}
