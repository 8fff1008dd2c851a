package machinedeployment_test

import (
	"errors"
	"flag"
	"net/http"
	"strings"
	"sync"
	"testing"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// leastWrites is how many writes an update of one machine in place has at least.
const leastWrites = 10

var thorough = flag.Bool("thorough", false, "have the controllers die before each write of an update in place, not before every second")

// TestInPlaceRestartBetweenWrites has the controllers die before writes of an update in place, one after the other, at each of its five
// steps (C11). Others go on, and the machine stays the same.
func TestInPlaceRestartBetweenWrites(t *testing.T) {
	t.Parallel()
	f := newIdleField(t)
	f.extend(true, runtimev1.FailurePolicyFail)
	stop := f.manage()
	d := f.start(f.newDeployment(1, 0, 1))
	before := identities(f.machines())
	stop()
	step, template := 2, "small"
	if *thorough {
		step = 1
	}
	for at, isCut := 1, true; isCut; at += step {
		template = map[string]string{"small": "medium", "medium": "small"}[template]
		cut := newCut(at)
		stop := f.manageIn(sandboxtest.Before(stage.Sandbox(t).Config, cut.check))
		f.resize(d, template)
		isCut = f.awaitCutOrUpdated(cut, template)
		stop()
		if !isCut && at <= leastWrites {
			t.Fatalf("the controllers did not die at write %d", at)
		}
		stop = f.manage()
		f.awaitComplete(d, template)
		stop()
		f.checkUpdated(template, before)
		if len(f.machines()) != 1 || t.Failed() {
			t.Fatalf("%d machines after the controllers died before write %d: %s", len(f.machines()), at, cut.write())
		}
	}
}

// awaitCutOrUpdated waits until the controllers are cut off, which it returns, or have come to the end of a rollout.
func (f *field) awaitCutOrUpdated(cut *cutConnection, template string) bool {
	f.Helper()
	f.Eventually("the controllers are cut off, or all machines are of template "+template, func() bool {
		sets := f.sets()
		return cut.write() != "" || len(sets) == 1 && sets[template] != nil
	})
	return cut.write() != ""
}

// A cutConnection is how controllers reach the API server until one of their writes: from then on no request arrives.
type cutConnection struct {
	mu    sync.Mutex
	left  int    // writes that arrive
	first string // the write that did not arrive; empty if all have
}

// newCut returns a connection that is cut at the write of that number. Events and statuses are no writes.
func newCut(at int) *cutConnection { return &cutConnection{left: at - 1} }

// write returns the write that did not arrive.
func (c *cutConnection) write() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// check fails a request that does not arrive.
func (c *cutConnection) check(r *http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	isWrite := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.HasSuffix(r.URL.Path, "/status")
	if isWrite && c.left == 0 && c.first == "" {
		c.first = r.Method + " " + r.URL.Path
	}
	if isWrite {
		c.left--
	}
	if c.first != "" {
		return errors.New("the connection is cut")
	}
	return nil
}
