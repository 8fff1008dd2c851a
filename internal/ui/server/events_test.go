package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// patience is far longer than any expected event takes.
const patience = time.Minute

// A scene is a server of the pages on a release that has only a record.
type scene struct {
	*testing.T
	server    *Server
	base      string
	cookie    string
	namespace string // also the name of the release
	rendered  atomic.Int32
	isDown    atomic.Bool           // the cluster does not respond
	fault     atomic.Pointer[error] // of the pages on the release
}

func begin(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, namespace: test.Namespace(t)}
	config := sandboxtest.Before(test.Sandbox(t).Config, func(*http.Request) error {
		if s.isDown.Load() {
			return errors.New("the network is down")
		}
		return nil
	})
	hub := live.New(live.Config{Cluster: sandboxtest.Connect(t, config), Namespace: s.namespace})
	local := NewLocal(1)
	s.server = New(&pages.Site{Hub: hub,
		Allow: func(_ context.Context, right authorizationv1.ResourceAttributes) error {
			if fault := s.fault.Load(); fault != nil {
				return *fault
			}
			if right.Verb == "get" && strings.HasSuffix(right.Name, s.namespace) {
				s.rendered.Add(1) // each page on the release asks once
			}
			return nil
		}}, local)
	listening := httptest.NewUnstartedServer(nil)
	listening.Config = s.server.HTTP()
	listening.Start()
	t.Cleanup(func() {
		s.server.End("")
		listening.Close()
	})
	s.base, s.cookie = listening.URL, "Cookie: runlevel-1="+local.secret
	local.hosts = []string{strings.TrimPrefix(listening.URL, "http://")}
	s.record("1.0.0")
	return s
}

// record writes the record of a version.
func (s *scene) record(version string) {
	s.Helper()
	store := record.NewStore(test.Client(s), s.namespace, s.namespace)
	known, _, err := store.Load(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	known.Release = s.namespace
	known.History = record.History{{Version: version, Revision: 1, State: record.Completed}}
	if err := store.Save(s.Context(), known); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) page() string { return "/releases/" + s.namespace + "/" + s.namespace }

// An event is an event of a stream.
type event struct{ kind, id, data string }

// A tab is an open stream.
type tab struct {
	*scene
	answer *http.Response
	events chan event
	close  context.CancelFunc
}

// open opens the stream of a page, as a browser does that has one of its versions.
func (s *scene) open(page, have string) *tab {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	address := s.base + eventsAddress + "?" + url.Values{"page": {page}, "have": {have}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	name, value, _ := strings.Cut(s.cookie, ": ")
	r.Header.Set(name, value)
	answer, err := (&http.Client{Transport: &http.Transport{}}).Do(r)
	if err != nil {
		s.Fatal(err)
	}
	t := &tab{s, answer, make(chan event, 100), cancel}
	go t.read()
	return t
}

// read sends the events to the channel, which it closes at the end of the stream.
func (t *tab) read() {
	defer close(t.events)
	defer t.answer.Body.Close()
	var e event
	for lines := bufio.NewScanner(t.answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e = event{kind: value}
		case "id":
			e.id = value
		case "data":
			e.data = value
			t.events <- e
		}
	}
}

// until waits for an event of a kind with a text.
func (t *tab) until(kind, text string) event {
	t.Helper()
	deadline := time.After(patience)
	var last event
	for {
		select {
		case e, isOpen := <-t.events:
			switch {
			case !isOpen:
				t.Fatalf("the stream ended before an event %s with %q; the last: %v", kind, text, last)
			case e.kind == kind && strings.Contains(e.data, text):
				return e
			}
			last = e
		case <-deadline:
			t.Fatalf("no event %s with %q; the last: %v", kind, text, last)
		}
	}
}

// ended waits for the end of a stream.
func (t *tab) ended() {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case _, isOpen := <-t.events:
			if !isOpen {
				return
			}
		case <-deadline:
			t.Fatal("the stream does not end")
		}
	}
}

// have returns the version of a page as it was loaded.
func (s *scene) have(page string) string {
	s.Helper()
	text := read(s.T, request(s.T, "GET", s.base+page, s.cookie))
	_, after, _ := strings.Cut(text, `data-have="`)
	version, _, _ := strings.Cut(after, `"`)
	return version
}

// An open page gets the sections that change, and no others.
func TestOpenPageFollowsChanges(t *testing.T) {
	t.Parallel()
	s := begin(t)
	open := s.open(s.page(), s.have(s.page()))
	first := open.until("page", "")
	if !strings.Contains(first.data, `"changed":{}`) {
		t.Errorf("the page is current, and gets %s", first.data)
	}
	s.record("2.0.0")
	e := open.until("page", "2.0.0")
	var c struct {
		Sections []string
		Changed  map[string]string
	}
	if err := json.Unmarshal([]byte(e.data), &c); err != nil {
		t.Fatal(err)
	}
	if c.Changed["summary"] == "" || c.Changed["header"] != "" || c.Changed["deletes"] != "" || len(c.Sections) < 3 {
		t.Errorf("want the summary, and not the header: %s", e.data)
	}
	if have := s.have(s.page()); have != e.id {
		t.Errorf("the page has version %s, the event %s", have, e.id)
	}
	if again := s.open(s.page(), "older").until("page", "").data; !strings.Contains(again, `"header":`) {
		t.Errorf("a page of an unknown version gets %s", again)
	}
}

// Many tabs cost as much as one, and leave connections for other requests.
func TestManyTabsShareOnePage(t *testing.T) {
	t.Parallel()
	s := begin(t)
	have := s.have(s.page())
	var tabs []*tab
	for range 20 {
		tabs = append(tabs, s.open(s.page(), have))
		tabs[len(tabs)-1].until("page", "")
	}
	before := s.rendered.Load()
	if before > 4 { // for the first request, and then before and after the subscription
		t.Errorf("20 tabs made the page %d times", before)
	}
	for i, one := range tabs {
		if i >= maxStreams {
			one.until("later", "2000")
			one.ended()
		}
	}
	s.record("2.0.0")
	for _, one := range tabs[:maxStreams] {
		one.until("page", "2.0.0")
	}
	if s.rendered.Load() > before+4 { // two changes of the record, and its lock
		t.Errorf("a change made the page %d times for 4 tabs", s.rendered.Load()-before)
	}
	tabs[0].close()
	tabs[0].ended()
	s.eventually("a free stream", func() bool {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		return s.server.streams["local Go-http-client/1.1"] == maxStreams-1
	})
	s.open(s.page(), have).until("page", "2.0.0")
}

// Further pages than maxFeedsOfUser are not kept current, and ask again later.
func TestManyPagesOfAUser(t *testing.T) {
	t.Parallel()
	s := begin(t)
	for i := range 1000 {
		one := s.open(fmt.Sprintf("/?q=%d", i), "")
		one.until("page", "")
		if i > 2*maxFeedsOfUser { // a feed may linger
			one.close()
		}
		s.server.mu.Lock()
		feeds := len(s.server.feeds)
		s.server.mu.Unlock()
		if feeds > maxFeedsOfUser {
			t.Fatalf("%d feeds after %d pages", feeds, i+1)
		}
	}
}

func TestRendersOfAUserAreLimited(t *testing.T) {
	s := New(nil, nil)
	busy := &user{renders: make(chan struct{}, maxRendersOfUser)}
	other := &user{renders: make(chan struct{}, maxRendersOfUser)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range maxRendersOfUser {
		if _, err := s.takeTurn(ctx, busy); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.takeTurn(ctx, other); err != nil {
		t.Error("the turn of another user:", err)
	}
	cancel()
	if _, err := s.takeTurn(ctx, busy); err == nil {
		t.Error("a user makes more pages than allowed at the same time")
	}
}

func (s *scene) eventually(what string, isTrue func() bool) {
	s.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(10 * time.Millisecond); !isTrue(); {
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("never: %s", what)
		}
	}
}

// A page that was loaded while the cluster did not respond appears later.
func TestFailedPageAppearsLater(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.isDown.Store(true)
	answer := request(t, "GET", s.base+"/", s.cookie)
	if text := read(t, answer); answer.StatusCode != 502 || !strings.Contains(text, "the network is down") ||
		!strings.Contains(text, `data-have=""`) {
		t.Fatalf("%s: %s", answer.Status, text)
	}
	failed := s.open("/", "")
	failed.until("page", "the network is down")
	s.isDown.Store(false)
	failed.until("page", s.namespace)
}

// A complete page stays when it can't be made again, and gets the reason.
func TestCompletePageStays(t *testing.T) {
	t.Parallel()
	s := begin(t)
	open := s.open(s.page(), s.have(s.page()))
	open.until("page", "")
	fault := errors.New("the pages fail")
	s.fault.Store(&fault)
	s.record("2.0.0")
	open.until("trouble", "the pages fail")
	s.fault.Store(nil)
	open.until("page", "2.0.0")
}

// The end of the server ends the streams and the work for them.
func TestServerEndsStreams(t *testing.T) { // not in parallel: it looks for goroutines
	s := begin(t)
	var tabs []*tab
	for _, page := range []string{s.page(), s.page() + "/objects", "/"} {
		tabs = append(tabs, s.open(page, ""))
		tabs[len(tabs)-1].until("page", "")
	}
	began := time.Now()
	s.server.End("it has ended")
	for _, one := range tabs {
		one.until("end", "it has ended")
		one.ended()
	}
	s.eventually("no work for this server", func() bool {
		stacks := make([]byte, 1<<22)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "server.(*Server).follow")
	})
	if took := time.Since(began); took > linger-time.Second {
		t.Errorf("the work ended %s after the server", took)
	}
}

// A server is idle when no page was open for some time.
func TestIdle(t *testing.T) {
	t.Parallel()
	s := begin(t)
	open := s.open(s.page(), "")
	open.until("page", "")
	var isClosed atomic.Bool
	wasClosed := make(chan bool, 1)
	s.server.WhenIdle(time.Millisecond, func() { wasClosed <- isClosed.Load() })
	s.have(s.page()) // another request begins and ends
	isClosed.Store(true)
	open.close()
	select {
	case wasClosed := <-wasClosed:
		if !wasClosed {
			t.Error("idle with an open page")
		}
	case <-time.After(patience):
		t.Error("never idle")
	}
}

// A page without a right shows which one is missing.
func TestForbiddenPage(t *testing.T) {
	t.Parallel()
	s := begin(t)
	fault := errors.Join(pages.ErrForbidden, errors.New("get configmaps"))
	s.fault.Store(&fault)
	answer := request(t, "GET", s.base+s.page(), s.cookie)
	if text := read(t, answer); answer.StatusCode != 403 || !strings.Contains(text, "get configmaps") {
		t.Errorf("%s: %s", answer.Status, text)
	}
}
