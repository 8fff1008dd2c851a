package keep_test

import (
	"context"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/payload"
)

// pollInterval is the time between two polls.
const pollInterval = 50 * time.Millisecond

// An estate is a release of many objects: half are ConfigMaps, the other half Ingresses,
// which have a generation, and a status that no controller of a sandbox writes.
type estate struct {
	name, namespace string
	size            int
}

func newEstate(t testing.TB, size int) *estate {
	return &estate{name: "estate-" + rand.String(6), namespace: test.Namespace(t), size: size}
}

// load reads the release.
func (e *estate) load(t testing.TB) *payload.Payload {
	t.Helper()
	folder := fstest.MapFS{}
	for i := range e.size / 2 {
		put := func(kind, text string) {
			folder[fmt.Sprintf("0000_10_estate_%s-%04d.yaml", kind, i)] = &fstest.MapFile{
				Data: fmt.Appendf(nil, text, e.namespace, i),
			}
		}
		put("settings",
			`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: %s, name: settings-%d}, data: {colour: blue, size: large}}`)
		put("door",
			`{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {namespace: %s, name: door-%d}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`)
	}
	release, _, err := payload.Load(t.Context(), folder, payload.Options{Name: e.name, Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// keep applies the release and keeps it in place until the test ends, or stop is called, which
// waits for that. onEvent is called with each event.
func (e *estate) keep(t testing.TB, onEvent func(keep.Event)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	isKeeping, ended := make(chan struct{}), make(chan error, 1)
	on, release := connectAs(t, e.name), e.load(t)
	go func() {
		ended <- session.Run(ctx, on, release,
			session.Options{Keep: &keep.Options{Every: -1, OnEvent: func(event keep.Event) {
				if event.Type == keep.Keeping {
					close(isKeeping)
				}
				onEvent(event)
			}}}).Err
	}()
	select {
	case <-isKeeping:
	case err := <-ended:
		t.Fatal("the estate is not kept in place:", err)
	}
	hasStopped := false
	stop = func() {
		if hasStopped {
			return
		}
		hasStopped = true
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Error("the estate was not kept in place until the end:", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// connect makes a connection that the audit log knows by a name.
func connectAs(t testing.TB, name string) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(test.Sandbox(t).Config)
	config.UserAgent = name
	c, err := cluster.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// drift changes one of the ConfigMaps, and returns its new version.
func (e *estate) drift(ctx context.Context, c *cluster.Cluster, i int, colour string) (version string, err error) {
	patch := fmt.Appendf(nil, `{"data": {"colour": %q}}`, colour)
	changed, err := c.Client.CoreV1().ConfigMaps(e.namespace).Patch(ctx, fmt.Sprint("settings-", i),
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		return "", err
	}
	return changed.ResourceVersion, nil
}

// writeStatus writes the status of one of the Ingresses, as a controller does.
func (e *estate) writeStatus(ctx context.Context, c *cluster.Cluster, i, count int) error {
	patch := fmt.Appendf(nil, `{"status": {"loadBalancer": {"ingress": [{"hostname": "door-%d.example.com"}]}}}`, count)
	_, err := c.Client.NetworkingV1().Ingresses(e.namespace).Patch(ctx, fmt.Sprint("door-", i), types.MergePatchType,
		patch, metav1.PatchOptions{FieldManager: "controller"}, "status")
	return err
}
