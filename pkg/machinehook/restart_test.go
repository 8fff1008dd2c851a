package machinehook_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/machines/deletion"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/machinehook"
)

// A breaker breaks the connection of a controller at a write to a Machine, as if the controller died there.
type breaker struct {
	mu     sync.Mutex
	after  int  // how many writes pass before
	isLate bool // the write arrives, and its response does not
	broken chan struct{}
}

var errBroken = errors.New("the connection is broken")

// tap passes requests, or fails them.
func (b *breaker) tap(request *http.Request, send http.RoundTripper) (*http.Response, error) {
	isFirst, isBroken := b.count(request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/machines/"))
	if !isBroken {
		return send.RoundTrip(request)
	}
	if isFirst && b.isLate {
		if response, err := send.RoundTrip(request); err == nil {
			_ = response.Body.Close()
		}
	}
	if isFirst {
		close(b.broken)
	}
	return nil, errBroken
}

func (b *breaker) count(isWrite bool) (isFirst, isBroken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if isWrite {
		b.after--
	}
	return isWrite && b.after == -1, b.after < 0
}

// TestServerRestartBetweenWrites kills the controller of a hook at each of its writes, before the write arrives and
// after. Another controller continues: the machine has the hook before the deletion, the hook acts, and is removed
// then.
func TestServerRestartBetweenWrites(t *testing.T) {
	for after, write := range []string{"adds the hook", "reports its message", "removes the hook"} {
		for _, isLate := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, arrives %t", write, isLate), func(t *testing.T) { restart(t, after, isLate) })
		}
	}
}

func restart(t *testing.T, after int, isLate bool) {
	s, script := newFixture(t), newScript()
	h := script.hook("ShipLogs", deletion.BeforeTerminate)
	script.setAnswer(func() (machinehook.HookAnswer, error) { // done at the second call
		if len(script.acted()) == 1 {
			return waiting()
		}
		return done()
	})
	b := &breaker{after: after, isLate: isLate, broken: make(chan struct{})}
	// A new machine is written often, so that the hook's first write could be a conflict.
	m := s.add("m", machinev1beta1.LifecycleHooks{})
	s.await(m, func(m *machinev1beta1.Machine) bool {
		return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseRunning
	})
	stop := s.serveBy(sandboxtest.Tap(shared.Sandbox(t).Config, b.tap), h)
	if after > 0 {
		s.awaitHook(m, h, true)
		s.MustDelete(m)
	}
	<-b.broken
	stop()
	if after > 0 && !isLate {
		if m = s.await(m, func(*machinev1beta1.Machine) bool {
			return true
		}); !slices.Contains(hooksOf(m), described(h)) {
			t.Error("the hook was removed while its controller was dead")
		}
	}
	s.serve(h)
	if after == 0 {
		s.awaitHook(m, h, true)
		s.MustDelete(m)
	}
	s.AwaitGone(m)
	if len(script.acted()) < 2 {
		t.Errorf("the machine is deleted after %d calls, want at least 2", len(script.acted()))
	}
}
