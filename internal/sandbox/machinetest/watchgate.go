package machinetest

import (
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// A WatchGate holds back the events of the watches of a resource while it is closed, so that caches lag.
type WatchGate struct {
	resource string
	mu       sync.Mutex
	opened   *sync.Cond
	isClosed bool
}

// NewWatchGate returns an open gate for the watches of a resource.
func NewWatchGate(resource string) *WatchGate {
	g := &WatchGate{resource: resource}
	g.opened = sync.NewCond(&g.mu)
	return g
}

// Close holds back all events.
func (g *WatchGate) Close() { g.set(true) }

// Open releases the events. Controllers whose watches are held do not end.
func (g *WatchGate) Open() { g.set(false) }

func (g *WatchGate) set(isClosed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isClosed = isClosed
	g.opened.Broadcast()
}

// Config returns a client configuration whose watches of the resource go through the gate.
func (g *WatchGate) Config(reach *rest.Config) *rest.Config {
	return sandboxtest.Tap(reach, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		response, err := send.RoundTrip(request)
		isWatch := request.URL.Query().Get("watch") != ""
		if err == nil && isWatch && strings.HasSuffix(request.URL.Path, "/"+g.resource) {
			response.Body = &gatedBody{ReadCloser: response.Body, gate: g}
		}
		return response, err
	})
}

type gatedBody struct {
	io.ReadCloser
	gate *WatchGate
}

func (b *gatedBody) Read(into []byte) (int, error) {
	count, err := b.ReadCloser.Read(into)
	b.gate.mu.Lock()
	defer b.gate.mu.Unlock()
	for b.gate.isClosed && err == nil {
		b.gate.opened.Wait()
	}
	return count, err
}
