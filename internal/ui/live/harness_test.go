package live_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// patience is far longer than any expected event takes.
const patience = time.Minute

// A site is a release that a test applies and looks at. It has its own namespace, whose name it has, and NS stands for
// that name in its files.
type site struct {
	testing.TB
	name     string
	hub      *live.Hub
	payload  atomic.Pointer[payload.Payload]
	requests atomic.Int32           // requests of the hub
	records  atomic.Int32           // its reads of the record
	watching atomic.Int32           // its watches that have not ended
	refused  atomic.Pointer[string] // end of the path of reads that are refused
}

var errNetwork = errors.New("the network is down")

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{TB: t, name: test.Namespace(t)}
	s.connect(test.Sandbox(t).Config)
	return s
}

// connect makes the hub, which uses a connection from now on.
func (s *site) connect(config *rest.Config) {
	config = sandboxtest.Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		s.requests.Add(1)
		if strings.HasSuffix(request.URL.Path, "/configmaps/"+lock.Name(s.name)) {
			s.records.Add(1)
		}
		refused := s.refused.Load()
		if refused != nil && strings.HasSuffix(request.URL.Path, *refused) && !request.URL.Query().Has("watch") {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Request: request, Body: http.NoBody}, nil
		}
		response, err := send.RoundTrip(request)
		if request.URL.Query().Get("watch") != "" && err == nil && response.StatusCode == http.StatusOK {
			s.watching.Add(1)
			context.AfterFunc(request.Context(), func() { s.watching.Add(-1) })
		}
		return response, err
	})
	s.hub = live.New(live.Config{
		Cluster: sandboxtest.Connect(s, config), Namespace: s.name,
		Open: func(context.Context, string, string, string) (*payload.Payload, error) {
			return s.payload.Load(), nil
		},
	})
}

// patch changes an object of the namespace.
func (s *site) patch(resource, name, patch string) {
	s.Helper()
	kind := schema.GroupVersionResource{Version: "v1", Resource: resource}
	_, err := test.Connect(s).Objects.Resource(kind).Namespace(s.name).Patch(s.Context(), name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// delete deletes a ConfigMap.
func (s *site) delete(name string) {
	s.Helper()
	if err := test.Client(s).CoreV1().ConfigMaps(s.name).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// schedule lets all pods be scheduled.
func (s *site) schedule() {
	s.Helper()
	sandboxtest.Eventually(s, "a pod that waits", func(ctx context.Context) bool {
		pods, err := test.Client(s).CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		found := false
		for _, pod := range pods.Items {
			if len(pod.Spec.SchedulingGates) > 0 && pod.DeletionTimestamp == nil {
				s.patch("pods", pod.Name, `{"spec":{"schedulingGates":null}}`)
				found = true
			}
		}
		return found
	})
}

// renewals waits until the lock was renewed several times.
func (s *site) renewals(count int) {
	s.Helper()
	var last time.Time
	sandboxtest.Eventually(s, "renewals of the lock", func(ctx context.Context) bool {
		lease, err := test.Client(s).CoordinationV1().Leases(s.name).Get(ctx, lock.Name(s.name), metav1.GetOptions{})
		if err == nil && lease.Spec.RenewTime.After(last) {
			last = lease.Spec.RenewTime.Time
			count--
		}
		return count < 0
	})
}

// apply begins to apply a version of the release. The function waits for the end, and returns the error.
func (s *site) apply(version, manifests string, change ...func(*session.Options)) (wait func() error) {
	s.Helper()
	return s.applyAs(test.Sandbox(s).Config, version, manifests, change...)
}

// applyAs applies over a connection.
func (s *site) applyAs(config *rest.Config, version, manifests string,
	change ...func(*session.Options)) (wait func() error) {
	s.Helper()
	release := sandboxtest.LoadRelease(s, s.name, manifests, payload.Options{Name: s.name})
	release.Version = version
	release.Hash += version
	packed, err := files.Pack(fstest.MapFS{"a.yaml": {Data: []byte(manifests + version)}}, []string{"a.yaml"}, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.payload.Store(release)
	options := session.Options{Namespace: s.name,
		Apply: apply.Options{Timeout: patience, ReportWaits: 100 * time.Millisecond},
		Files: session.FileOptions{Packed: packed, HistoryMax: 3}}
	for _, fn := range change {
		fn(&options)
	}
	ctx, stop := context.WithCancel(s.Context())
	s.Cleanup(stop)
	connected, ended := sandboxtest.Connect(s, config), make(chan error, 1)
	go func() { ended <- session.Run(ctx, connected, release, options).Err }()
	return func() error { return <-ended }
}

// must applies a version of the release, and waits until it is complete.
func (s *site) must(version, manifests string) {
	s.Helper()
	if err := s.apply(version, manifests)(); err != nil {
		s.Fatal(err)
	}
}

// release reads the release.
func (s *site) release() *live.Release {
	s.Helper()
	release, err := s.hub.Release(s.Context(), s.name, s.name)
	if err != nil {
		s.Fatal(err)
	}
	return release
}

// topic is the topic of the release.
func (s *site) topic() live.Topic {
	return live.Topic{Kind: live.OfRelease, Namespace: s.name, Name: s.name}
}

// A viewer follows a release like an open page: it reads the release after each notification of a change.
type viewer struct {
	*site
	changes <-chan struct{}
	stop    context.CancelFunc
}

// open opens a page.
func (s *site) open() *viewer {
	ctx, stop := context.WithCancel(s.Context())
	s.Cleanup(stop)
	return &viewer{s, s.hub.Changes(ctx, s.topic()), stop}
}

// until reads the release after each change until it is as wanted.
func (v *viewer) until(what string, isWanted func(*live.Release) bool) *live.Release {
	v.Helper()
	deadline := time.After(patience)
	for {
		release := v.release()
		if isWanted(release) {
			return release
		}
		select {
		case <-v.changes:
		case <-deadline:
			v.Fatalf("never: %s: %+v", what, release.Status)
		}
	}
}

// quiet waits until there is no notification for a while.
func (v *viewer) quiet(pause time.Duration) {
	v.Helper()
	deadline := time.After(patience)
	for {
		select {
		case <-deadline:
			v.Fatal("changes without end")
		case <-v.changes:
			v.release()
		case <-time.After(pause):
			return
		}
	}
}
