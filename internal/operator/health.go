package operator

import (
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

// limits are how long a condition may last before a probe fails.
type limits struct {
	loopTimeout        time.Duration // a loop makes no progress: not alive
	watchNotReadyAfter time.Duration // a watch is lost: not ready
	watchNotAliveAfter time.Duration // a watch is lost, and the API server answers: not alive
}

var usualLimits = limits{
	loopTimeout:        15 * time.Minute,
	watchNotReadyAfter: time.Minute,
	watchNotAliveAfter: 10 * time.Minute,
}

// health answers the probes of an operator. The operator is not alive when a restart may help, and not ready when it
// can't do its work. While the API server is away, it is alive: a restart would not help.
type health struct {
	limits  limits
	watches *ownWatches

	mu   sync.Mutex
	busy map[string]time.Time // the steps that loops are at, and since when
}

func newHealth(l limits) *health {
	if l == (limits{}) {
		l = usualLimits
	}
	return &health{limits: l, watches: &ownWatches{byPath: map[string]*ownWatch{}}, busy: map[string]time.Time{}}
}

// enter notes that a loop has begun a step, and returns a function that notes its end.
func (h *health) enter(what string) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[what] = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.busy, what)
	}
}

// probes returns the checks of an operator by their names.
func (h *health) probes(a *applier) startup.Probes {
	holder := func(check func() error) healthz.Checker { // the API server answers a holder of the lock
		return func(*http.Request) error {
			if !a.holds() {
				return nil
			}
			return check()
		}
	}
	alive := map[string]healthz.Checker{
		"loops": func(r *http.Request) error {
			a.State() // which hangs, and the probe with it, if a loop never unlocks its mutex
			return holder(h.checkLoops)(r)
		},
		"watches": holder(func() error { return h.watches.check(h.limits.watchNotAliveAfter) }),
	}
	ready := map[string]healthz.Checker{
		"watches": func(*http.Request) error {
			return errors.Join(h.watches.begun(), h.watches.check(h.limits.watchNotReadyAfter))
		},
		"lock": func(*http.Request) error { return a.checkLock() },
	}
	for name, check := range alive {
		alive[name] = logging("not alive", check)
	}
	for name, check := range ready {
		ready[name] = logging("not ready", check)
	}
	return startup.Probes{Alive: alive, Ready: ready}
}

// logging logs why a check fails: the answer of a probe does not contain the reason.
func logging(what string, check healthz.Checker) healthz.Checker {
	return func(r *http.Request) error {
		err := check(r)
		if err != nil {
			ctrl.Log.WithName("health").Info(what, "reason", err.Error())
		}
		return err
	}
}

// checkLoops returns an error if a loop has been at the same step for too long.
func (h *health) checkLoops() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(h.busy)) {
		if took := time.Since(h.busy[what]); took > h.limits.loopTimeout {
			return fmt.Errorf("%s hangs: it has not come to an end for %s", what, took.Round(time.Second))
		}
	}
	return nil
}

// checkLock returns an error if the lock of the release was held, and is lost. A replica that waits for it is ready to
// take over.
func (a *applier) checkLock() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != nil && a.session.Held().Err() != nil {
		return errors.New("the lock of the release is lost, and is taken again when the API server answers")
	}
	return nil
}

// ownWatches are the watches of the operator's own caches. They are observed in the transport: caches don't report
// whether their watches are open.
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
func (w *ownWatches) config(of *rest.Config) *rest.Config {
	observed := rest.CopyConfig(of)
	observed.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchedTransport{next, w} })
	return observed
}

// begun returns an error until each watch was open once.
func (w *ownWatches) begun() error {
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

// check returns an error if there has been no watch for too long.
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

// of returns the watches of a path. The lock is held.
func (w *ownWatches) of(path string) *ownWatch {
	if w.byPath[path] == nil {
		w.byPath[path] = &ownWatch{lost: time.Now()}
	}
	return w.byPath[path]
}

// begin notes that a watch is requested.
func (w *ownWatches) begin(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of(path)
}

// opened notes that a watch is open, and returns a function that notes its end.
func (w *ownWatches) opened(path string) (closed func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.of(path)
	watch.open, watch.wasOpen = watch.open+1, true
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		watch.open, watch.lost = watch.open-1, time.Now()
	})
}

// A watchedTransport observes the watches that go through it.
type watchedTransport struct {
	next http.RoundTripper
	seen *ownWatches
}

// RoundTrip sends a request. A watch is open until its answer is closed.
func (t watchedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	isWatch := request.URL.Query().Get("watch") == "true"
	if isWatch {
		t.seen.begin(request.URL.Path)
	}
	answer, err := t.next.RoundTrip(request)
	if isWatch && err == nil && answer.StatusCode == http.StatusOK {
		answer.Body = &watchBody{ReadCloser: answer.Body, closed: t.seen.opened(request.URL.Path)}
	}
	return answer, err
}

// A watchBody notes when a watch ends.
type watchBody struct {
	io.ReadCloser
	closed func()
}

// Close ends the watch.
func (b *watchBody) Close() error {
	b.closed()
	return b.ReadCloser.Close()
}
