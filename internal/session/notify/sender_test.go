package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session/notify"
)

// patience is far longer than a delivery that succeeds takes.
const patience = time.Minute

// secret is a part of each URL that nothing may show.
const secret = "/services/T000/pl4nted"

// A delivery is a request that a receiver got.
type delivery struct{ path, contentType, body string }

// A receiver is a server that answers with some codes, one after the other, and the last one from then on.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []delivery
}

func newReceiver(t *testing.T, codes ...int) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, delivery{request.URL.Path, request.Header.Get("Content-Type"), string(body)})
		w.Header().Set("Location", r.URL+"/elsewhere")
		w.WriteHeader(codes[min(len(r.got), len(codes))-1])
	}))
	t.Cleanup(r.Close)
	return r
}

// parse returns the receivers of some texts.
func parse(t *testing.T, texts ...string) []notify.Receiver {
	t.Helper()
	var all []notify.Receiver
	for _, text := range texts {
		found, err := notify.ParseReceiver(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found)
	}
	return all
}

func newSender(t *testing.T, texts ...string) *notify.Sender {
	t.Helper()
	return notify.NewSender(t.Context(), notify.Options{Receivers: parse(t, texts...), Cluster: "prod"})
}

var now = time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)

func send(s *notify.Sender, outcome notify.EventType) {
	s.Send(notify.Event{
		Outcome: outcome, Action: "update", Text: "shop 1.4.0 → 1.5.0: update <" + string(outcome) + "> @channel",
		Release: "shop", Namespace: "runlevel-system", Version: "1.5.0", From: "1.4.0",
	}, "https://api.example:6443/", now)
}

func TestAnEventIsACloudEvent(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 200)
	s := newSender(t, r.URL+secret)
	send(s, notify.Completed)
	if err := s.Close(patience); err != nil || len(r.got) != 1 {
		t.Fatal(err, r.got)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(r.got[0].body), &got); err != nil {
		t.Fatal(err)
	}
	if got["id"] == "" {
		t.Error("the notification has no id")
	}
	delete(got, "id")
	want := map[string]any{
		"specversion": "1.0", "type": "dev.runlevel.release.completed", "subject": "shop",
		"time": "2026-11-28T09:00:00Z", "datacontenttype": "application/json",
		"source": "https://api.example:6443/api/v1/namespaces/runlevel-system/configmaps/runlevel-release-shop",
		"data": map[string]any{
			"outcome": "completed", "action": "update", "text": "shop 1.4.0 → 1.5.0: update <completed> @channel",
			"release": "shop", "namespace": "runlevel-system", "cluster": "prod", "version": "1.5.0", "from": "1.4.0",
		},
	}
	if diff := cmp.Diff(want, got) +
		cmp.Diff(delivery{secret, "application/cloudevents+json", ""},
			delivery{r.got[0].path, r.got[0].contentType, ""}, cmp.AllowUnexported(delivery{})); diff != "" {
		t.Error(diff)
	}
}

func TestSlackGetsItsMessage(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 200)
	s := newSender(t, "slack+"+r.URL+secret)
	send(s, notify.Failed)
	if err := s.Close(patience); err != nil || len(r.got) != 1 {
		t.Fatal(err, r.got)
	}
	want := delivery{secret, "application/json",
		`{"text":"prod: shop 1.4.0 → 1.5.0: update \u0026lt;failed\u0026gt; @` + "\u200b" + `channel"}`}
	if diff := cmp.Diff(want, r.got[0], cmp.AllowUnexported(delivery{})); diff != "" {
		t.Error(diff)
	}
}

// TestAnEventIsSentAgain checks that a failed receiver gets the same event again, unless it has refused the event.
func TestAnEventIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		codes []int
		tries int
		err   string
	}{
		"a temporary error":           {[]int{500, 200}, 2, ""},
		"too many requests, and then": {[]int{429, 202}, 2, ""},
		"a refusal":                   {[]int{404}, 1, "404 Not Found"},
		"a redirect": {[]int{302}, 1,
			"302 Found: redirects are not followed: name the URL that it leads to"},
		"an error that stays": {[]int{503}, 3, "503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, c.codes...)
			s := newSender(t, r.URL+secret)
			send(s, notify.Begun)
			want := ""
			if c.err != "" {
				want = r.URL + "/… did not get 1 notification: " + c.err
			}
			got := ""
			if err := s.Close(patience); err != nil {
				got = err.Error()
			}
			if got != want || len(r.got) != c.tries {
				t.Errorf("%d tries, %q, want %q", len(r.got), got, want)
			}
			for _, again := range r.got {
				if again != r.got[0] {
					t.Errorf("the receiver got %s, and then %s", r.got[0].body, again.body)
				}
			}
		})
	}
}

// TestHangingReceiverDelaysNoOther expects that a receiver that hangs delays only its own notifications.
func TestHangingReceiverDelaysNoOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hanging.Close()
	defer close(release)
	r := newReceiver(t, 200)
	s := newSender(t, hanging.URL+secret, r.URL)
	began := time.Now()
	send(s, notify.Begun)
	send(s, notify.Completed)
	if took := time.Since(began); took > time.Second {
		t.Errorf("to send took %s", took)
	}
	sandboxtest.EventuallySucceeds(t, func(context.Context) error { return r.hasAll(2) })
	err := s.Close(time.Millisecond)
	if want := hanging.URL +
		"/… did not get 2 notifications: the receiver has not accepted the event in time"; err == nil ||
		err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestUnreachableReceiversAreReported checks that errors have no secret of the receiver.
func TestUnreachableReceiversAreReported(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	user := strings.Replace(closed.URL, "http://", "http://ana:pl4nted@", 1)
	s := newSender(t, user+secret+"?token=pl4nted", "TOKEN=pl4nted false")
	send(s, notify.Begun)
	err := s.Close(patience)
	want := "command … did not get 1 notification: exit status 1; " + closed.URL +
		"/… did not get 1 notification: nothing answers there (connection refused)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, text := range []string{"https://exa mple/pl4nted", "slack+ftp://example/pl4nted", "https://", " "} {
		if _, err := notify.ParseReceiver(text); err == nil || strings.Contains(err.Error(), "pl4nted") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestACommandGetsEachEvent checks that a command gets each event on its standard input, in order.
func TestACommandGetsEachEvent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	s := newSender(t, "cat >> "+file)
	send(s, notify.Begun)
	send(s, notify.Completed)
	if err := s.Close(patience); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], "release.begun") ||
		!strings.Contains(lines[1], "release.completed") {
		t.Errorf("%v %s", err, text)
	}
}

// TestReceiversOfAFolder expects that a folder is read for each event, and that commands in it are refused.
func TestReceiversOfAFolder(t *testing.T) {
	t.Parallel()
	r, folder, proof := newReceiver(t, 200), t.TempDir(), filepath.Join(t.TempDir(), "ran")
	s := notify.NewSender(t.Context(), notify.Options{Folder: folder})
	send(s, notify.Begun) // before the first receiver exists
	for name, text := range map[string]string{"slack": "slack+" + r.URL + secret + "\n", "..data": "nothing",
		"command": "touch " + proof} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	send(s, notify.Completed)
	if err := s.Close(patience); err != nil || len(r.got) != 1 {
		t.Error(err, r.got)
	}
	if _, err := os.Stat(proof); err == nil {
		t.Error("a command of a file was run")
	}
	if _, err := notify.ReadFolder(folder); err == nil ||
		!strings.Contains(err.Error(), "receiver command: not a URL") || strings.Contains(err.Error(), proof) {
		t.Error(err)
	}
}

func (r *receiver) hasAll(want int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got) != want {
		return fmt.Errorf("the receiver got %d notifications", len(r.got))
	}
	return nil
}
