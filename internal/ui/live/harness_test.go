package live_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlevel/runlevel/internal/record/files"
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
const patience = 2 * time.Minute

// A site is a release that a test applies and looks at. It has its own namespace, whose name it has, and NS stands for
// that name in its files.
type site struct {
	*testing.T
	name     string
	hub      *live.Hub
	payload  atomic.Pointer[payload.Payload]
	requests atomic.Int32                      // requests of the hub
	refuse   atomic.Pointer[func(string) bool] // the requests of the hub that fail, by method and path
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, name: test.Namespace(t)}
	config := sandboxtest.Before(test.Sandbox(t).Config, func(request *http.Request) error {
		s.requests.Add(1)
		if refuse := s.refuse.Load(); refuse != nil && (*refuse)(request.URL.Path+"?"+request.URL.RawQuery) {
			return errors.New("the network is down")
		}
		return nil
	})
	s.hub = live.New(live.Config{
		Cluster: sandboxtest.Connect(t, config), Namespace: s.name,
		Open: func(context.Context, string, string, string) (*payload.Payload, error) {
			return s.payload.Load(), nil
		},
	})
	return s
}

// apply applies a version of the release until the function is called, which waits for the end and returns the error.
func (s *site) apply(version, manifests string, change ...func(*session.Options)) (wait func() error) {
	s.Helper()
	release := sandboxtest.LoadRelease(s, s.name, manifests, payload.Options{Name: s.name})
	release.Version = version
	release.Hash += version
	packed, err := files.Pack(fstest.MapFS{"a.yaml": {Data: []byte(manifests + version)}}, []string{"a.yaml"}, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.payload.Store(release)
	options := session.Options{Namespace: s.name, Apply: apply.Options{Timeout: patience},
		Files: session.FileOptions{Packed: packed, HistoryMax: 3}}
	for _, fn := range change {
		fn(&options)
	}
	ctx, stop := context.WithCancel(s.Context())
	s.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- session.Run(ctx, test.Connect(s), release, options).Err }()
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

// A viewer looks at a release as an open page does: it reads when it is told about a change.
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

// quiet waits until no change was told for a while.
func (v *viewer) quiet(pause time.Duration) {
	for {
		select {
		case <-v.changes:
			v.release()
		case <-time.After(pause):
			return
		}
	}
}
