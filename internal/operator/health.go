package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/runlevel/runlevel/internal/program/startup"
)

// limits are the times after which a lasting condition fails a probe.
type limits struct {
	loopTimeout        time.Duration // a loop makes no progress: not alive
	watchNotReadyAfter time.Duration // a watch is lost: not ready
	watchNotAliveAfter time.Duration // a watch is lost, and the API server answers: not alive
}

var usualLimits = limits{
	loopTimeout: 15 * time.Minute, watchNotReadyAfter: time.Minute, watchNotAliveAfter: 10 * time.Minute,
}

// health answers the probes of an operator. The operator is not alive when a restart may help, and not ready when it
// can't do its work. While the API server does not answer, it is alive: a restart would not help.
type health struct {
	limits  limits
	watches *ownWatches

	mu   sync.Mutex
	busy map[string]time.Time // the current steps of loops, and since when
}

func newHealth(l limits) *health {
	if l == (limits{}) {
		l = usualLimits
	}
	return &health{limits: l, watches: &ownWatches{byPath: map[string]*ownWatch{}}, busy: map[string]time.Time{}}
}

// enter records that a loop has begun a step, and returns a function that records its end.
func (h *health) enter(step string) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[step] = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.busy, step)
	}
}

// A check returns why a probe fails.
type check func() error

// probes returns the checks of an operator by their names. Only a replica that holds the lock can fail to be alive: the
// API server answers it.
func (h *health) probes(m *stateMachine) startup.Probes {
	ifHolding := func(check check) check {
		return func() error {
			if !m.holds() {
				return nil
			}
			return check()
		}
	}
	return startup.Probes{
		Alive: logged("not alive", map[string]check{
			"loops": func() error {
				m.output() // hangs, and the probe with it, if a loop never unlocks the mutex of the machine
				return ifHolding(h.checkLoops)()
			},
			"watches": ifHolding(func() error { return h.watches.check(h.limits.watchNotAliveAfter) }),
		}),
		Ready: logged("not ready", map[string]check{
			"watches": func() error {
				return errors.Join(h.watches.checkBegun(), h.watches.check(h.limits.watchNotReadyAfter))
			},
			"lock": func() error { return checkLock(m.held()) },
		}),
	}
}

// logged returns checks that log why they fail: the response to a probe does not contain the reason.
func logged(failed string, checks map[string]check) map[string]healthz.Checker {
	all := map[string]healthz.Checker{}
	for name, check := range checks {
		all[name] = func(*http.Request) error {
			err := check()
			if err != nil {
				ctrl.Log.WithName("health").Info(failed, "reason", err.Error())
			}
			return err
		}
	}
	return all
}

// checkLoops returns an error if a loop has been in the same step for too long.
func (h *health) checkLoops() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, step := range slices.Sorted(maps.Keys(h.busy)) {
		if took := time.Since(h.busy[step]); took > h.limits.loopTimeout {
			return fmt.Errorf("%s hangs: it has not ended for %s", step, took.Round(time.Second))
		}
	}
	return nil
}

// checkLock returns an error if the lock of the release was held, and is lost. A replica that waits for the lock is
// ready to take over.
func checkLock(held context.Context) error {
	if held != nil && held.Err() != nil {
		return errors.New("the lock of the release is lost")
	}
	return nil
}

// ownWatches are the watches of the operator's own caches. The transport observes them: caches don't report whether
// their watches are open.
type ownWatches struct {
	mu     sync.Mutex
	byPath map[string]*ownWatch
}

// An ownWatch is the state of the watches of a path.
type ownWatch struct {
	open    int
	wasOpen bool
	lost    time.Time // since when none is open
}

// config returns a connection whose watches are observed.
func (w *ownWatches) config(connection *rest.Config) *rest.Config {
	observed := rest.CopyConfig(connection)
	observed.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchedTransport{next, w} })
	return observed
}

// checkBegun returns an error until each watch was open once.
func (w *ownWatches) checkBegun() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byPath) == 0 {
		return errors.New("nothing is watched yet")
	}
	for path, watch := range w.byPath {
		if !watch.wasOpen {
			return fmt.Errorf("%s is not watched yet", path)
		}
	}
	return nil
}

// check returns an error if no watch of a path has been open for too long.
func (w *ownWatches) check(limit time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, watch := range w.byPath {
		if watch.open == 0 && time.Since(watch.lost) > limit {
			return fmt.Errorf("%s is not watched since %s", path, watch.lost.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// add notes that watches of a path were opened, or closed if the number is negative. 0 notes that one is requested.
func (w *ownWatches) add(path string, opened int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.byPath[path]
	if watch == nil {
		watch = &ownWatch{lost: time.Now()}
		w.byPath[path] = watch
	}
	watch.open += opened
	watch.wasOpen = watch.wasOpen || opened > 0
	if opened < 0 {
		watch.lost = time.Now()
	}
}

// A watchedTransport observes the watches that are requested through it.
type watchedTransport struct {
	next    http.RoundTripper
	watches *ownWatches
}

// RoundTrip sends a request. A watch is open until the body of its response is closed.
func (t watchedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") != "true" {
		return t.next.RoundTrip(request)
	}
	path := request.URL.Path
	t.watches.add(path, 0)
	response, err := t.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK {
		t.watches.add(path, 1)
		response.Body = watchBody{response.Body, sync.OnceFunc(func() { t.watches.add(path, -1) })}
	}
	return response, err
}

// A watchBody is the body of the response to a watch.
type watchBody struct {
	io.ReadCloser
	onClose func()
}

// Close ends the watch.
func (b watchBody) Close() error {
	b.onClose()
	return b.ReadCloser.Close()
}
