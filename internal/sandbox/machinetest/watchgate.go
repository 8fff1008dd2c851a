package machinetest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Limit limits the number of objects of a resource in a namespace, and returns the ResourceQuota once it counts the
// objects. The quota controller discovers definitions twice a minute, and does not retry a quota for an unknown
// definition. So Limit recreates the quota until its objects are counted.
func (s *SharedSandbox) Limit(t testing.TB, namespace, counted string, limit int64) *corev1.ResourceQuota {
	t.Helper()
	c, name := s.Client(t), corev1.ResourceName("count/"+counted)
	var quota *corev1.ResourceQuota
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, patience, true,
		func(ctx context.Context) (bool, error) {
			if quota != nil {
				if err := c.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
					return false, err
				}
				if _, isCounted := quota.Status.Used[name]; isCounted {
					return true, nil
				}
				if err := c.Delete(ctx, quota); err != nil {
					return false, err
				}
			}
			quota = &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limit"},
				Spec: corev1.ResourceQuotaSpec{
					Hard: corev1.ResourceList{name: *resource.NewQuantity(limit, resource.DecimalSI)},
				},
			}
			return false, c.Create(ctx, quota)
		})
	if err != nil {
		t.Fatalf("limit %s: %v", counted, err)
	}
	return quota
}
