package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/operator/clusterversion"
)

// answering returns a client of a Prometheus that answers each request with a text.
func answering(t *testing.T, status int, text string) *client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("got %s %s, want GET", r.Method, r.URL)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	c, err := newClient(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// vector returns the answer to a query whose result has samples.
func vector(samples ...string) string {
	var all []string
	for _, sample := range samples {
		all = append(all, fmt.Sprintf(`{"metric": {}, "value": [1764504000, %q]}`, sample))
	}
	return `{"status": "success", "data": {"resultType": "vector", "result": [` + strings.Join(all, ",") + `]}}`
}

func TestAnswersOfAPrometheus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		answer string
		want   bool
		err    string
	}{
		"a match":       {answer: vector("1"), want: true},
		"no match":      {answer: vector("0")},
		"another value": {answer: vector("2"), err: "it must be 0 or 1"},
		"no samples":    {answer: vector(), err: "has 0 samples: it must have 1"},
		"two samples":   {answer: vector("1", "1"), err: "has 2 samples: it must have 1"},
		"a scalar": {
			answer: `{"status": "success", "data": {"resultType": "scalar", "result": [1764504000, "1"]}}`,
			err:    "is a scalar: it must be a vector",
		},
		"an error": {
			status: http.StatusBadRequest,
			answer: `{"status": "error", "errorType": "bad_data", "error": "parse error"}`,
			err:    "bad_data: parse error",
		},
		"a page":          {answer: "<html><body>Log in</body></html>", err: "executing PromQL query: "},
		"nothing":         {answer: "", err: "executing PromQL query: "},
		"a login page":    {status: http.StatusForbidden, answer: "<html>", err: "403"},
		"a long response": {answer: strings.Repeat(" ", maxResponse+1), err: "has more than 8388608 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := c.status
			if status == 0 {
				status = http.StatusOK
			}
			got, err := answering(t, status, c.answer).query(t.Context(), "up")
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %t, error %v; want %t, error %q", got, err, c.want, c.err)
			}
			if err != nil && len(err.Error()) > maxError+100 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestSilentPrometheus has a Prometheus that accepts a connection, and does not answer.
func TestSilentPrometheus(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := newClient(Options{URL: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	c.timeout = 50 * time.Millisecond
	if _, err := c.query(t.Context(), "up"); err == nil || !strings.Contains(err.Error(), "no response in time") {
		t.Errorf("got error %v, want no response in time", err)
	}
}

// TestErrorsOfADeadPrometheus checks that an error has its cause, and is the same each time.
func TestErrorsOfADeadPrometheus(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	c, err := newClient(Options{URL: "http://" + listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 500)
	_, first := c.query(t.Context(), long)
	_, second := c.query(t.Context(), long)
	if first == nil || second == nil || first.Error() != second.Error() ||
		!strings.Contains(first.Error(), "connection refused") {
		t.Errorf("got errors %v and %v, want connection refused twice", first, second)
	}
}

// TestTokenIsNotSentElsewhere checks that the client follows no redirect, which might lead to another server.
func TestTokenIsNotSentElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	t.Cleanup(server.Close)
	c, err := newClient(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.query(t.Context(), "up"); err == nil {
		t.Error("got no error of a redirect")
	}
}

// TestPace checks when queries are evaluated: new ones first, then those that fail, then the others once per hour.
func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	evaluated := func(ago time.Duration, err error) *followedQuery {
		return &followedQuery{
			result: clusterversion.QueryResult{Err: err}, evaluated: now.Add(-ago), followedAt: now,
		}
	}
	failed := errors.New("failed")
	f := &Follower{queries: map[string]*followedQuery{
		"new": {followedAt: now}, "failed": evaluated(50*time.Second, failed), "good": evaluated(50*time.Minute, nil),
		"unfollowed": {followedAt: now.Add(-time.Hour)}, "forgotten": {followedAt: now.Add(-25 * time.Hour)},
	}}
	for _, c := range []struct {
		query string
		due   time.Time
	}{{"new", time.Time{}}, {"failed", now.Add(10 * time.Second)}, {"good", now.Add(10 * time.Minute)}} {
		query, due := f.nextQuery(now)
		if query != c.query || !due.Equal(c.due) {
			t.Errorf("got query %s, due at %s; want %s at %s", query, due, c.query, c.due)
		}
		delete(f.queries, query)
	}
	if query, _ := f.nextQuery(now); query != "" || f.queries["unfollowed"] == nil || f.queries["forgotten"] != nil {
		t.Errorf("got query %q and queries %v; want none, and the forgotten one removed", query, f.queries)
	}
}

// TestErrorsOfAQueryStay checks that only a change between success and failure has the status computed again: the text
// of an error may differ each time.
func TestErrorsOfAQueryStay(t *testing.T) {
	t.Parallel()
	f := &Follower{queries: map[string]*followedQuery{"up": {}}}
	for i, c := range []struct {
		result     clusterversion.QueryResult
		hasChanged bool
		err        string
	}{
		{clusterversion.QueryResult{Err: errors.New("first")}, true, "first"},
		{clusterversion.QueryResult{Err: errors.New("second")}, false, "first"},
		{clusterversion.QueryResult{Matches: true}, true, ""},
		{clusterversion.QueryResult{Matches: true}, false, ""},
		{clusterversion.QueryResult{Err: errors.New("third")}, true, "third"},
	} {
		hasChanged, err := f.setResult("up", c.result), ""
		if kept := f.queries["up"].result.Err; kept != nil {
			err = kept.Error()
		}
		if hasChanged != c.hasChanged || err != c.err {
			t.Errorf("result %d: got changed %t, error %q; want %t, %q", i, hasChanged, err, c.hasChanged, c.err)
		}
	}
}

// An unreachable is a connection to a server of no known address.
type unreachable struct {
	api.Client
	requests int
}

func (u *unreachable) Do(context.Context, *http.Request) (*http.Response, []byte, error) {
	u.requests++
	return nil, nil, &url.Error{Op: "Get", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
}

// TestPrometheusOfOpenShift checks that an operator without flags reads OpenShift's Prometheus, and that one request
// per interval looks whether it exists.
func TestPrometheusOfOpenShift(t *testing.T) {
	t.Parallel()
	const authorities = "service-ca.crt"
	if got := (Options{}).orOpenShifts(authorities); got.CAFile != authorities || got.Check() != nil ||
		got.URL != "https://thanos-querier.openshift-monitoring.svc:9091" {
		t.Errorf("got %+v, want OpenShift's Prometheus", got)
	}
	other := Options{URL: "https://prometheus.example"}
	if got := other.orOpenShifts(authorities); got != other {
		t.Errorf("got %+v, want that of the flag", got)
	}

	connection, err := api.NewClient(api.Config{Address: "https://thanos-querier.openshift-monitoring.svc:9091"})
	if err != nil {
		t.Fatal(err)
	}
	server := &unreachable{Client: connection}
	f := &Follower{
		client: &client{api: promv1.NewAPI(server), timeout: time.Minute, options: Options{isOpenShifts: true}},
		notify: func() {}, wake: make(chan struct{}, 1),
		alerts: []clusterversion.Alert{{}}, alertErr: errors.New("down"),
	}
	f.Follow([]string{"up"})
	for range 10 {
		if pause := f.next(t.Context(), time.Now()); pause < alertInterval-time.Minute {
			t.Errorf("the next request is in %s", pause)
		}
	}
	if got := f.Follow([]string{"up"}); got != nil || server.requests != 1 {
		t.Errorf("got %+v after %d requests, want none after 1", got, server.requests)
	}
	f.client, f.alertsAt = answering(t, http.StatusOK, vector("1")), time.Now()
	f.alertErr = nil // as after a request that succeeds
	f.next(t.Context(), time.Now())
	if got := f.Follow([]string{"up"}); got == nil || !got.Queries["up"].Matches {
		t.Errorf("got %+v once it exists, want the result of the query", got)
	}
}

func TestCheckOfOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, ""},
		{Options{URL: "https://prometheus.example:9090", TokenFile: "token"}, ""},
		{Options{URL: "prometheus.example:9090"}, "write the URL of a Prometheus"},
		{Options{URL: "http://prometheus.example", TokenFile: "token"}, "a token is only sent over https"},
		{Options{CAFile: "ca.crt"}, "need --prometheus-url"},
		{Options{URL: None}, ""},
		{Options{URL: None, TokenFile: "token"}, "need --prometheus-url"},
	} {
		err := c.options.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", c.options, err, c.want)
		}
	}
}

// rules are alerts of which one fires.
const rules = `
groups:
- name: test
  interval: 1s
  rules:
  - alert: KubeNodeNotReady
    expr: vector(1)
    labels: {severity: warning}
    annotations: {summary: A node is not ready, runbook_url: "https://example.test/node"}
  - alert: Waiting
    expr: vector(1)
    for: 1h
`

// TestRealPrometheus evaluates queries, and reads alerts, in the program.
func TestRealPrometheus(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("install prometheus to run this test")
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"prometheus.yml": "rule_files: [rules.yml]\n", "rules.yml": rules} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	command := exec.CommandContext(t.Context(), program, "--config.file="+filepath.Join(folder, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Wait() }()
	defer func() { _ = command.Process.Kill() }()
	changed := make(chan struct{}, 100)
	follower, err := New(Options{URL: "http://" + address}, func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "it listens", func(ctx context.Context) bool {
		_, err := follower.client.query(ctx, "vector(0)")
		return err == nil
	})
	poll(t, "its rules are evaluated", func(ctx context.Context) bool {
		alerts, err := follower.client.alerts(ctx)
		return err == nil && len(alerts) > 0
	})
	go func() { _ = follower.Run(t.Context()) }()
	queries := []string{"vector(1)", "vector(0)", "up{"}
	var got *clusterversion.Monitoring
	for got = follower.Follow(queries); len(got.Queries) < len(queries) || len(got.Alerts) == 0; {
		<-changed
		got = follower.Follow(queries)
	}
	if result := got.Queries["vector(1)"]; !result.Matches || result.Err != nil {
		t.Errorf("vector(1): got %+v, want a match", result)
	}
	if result := got.Queries["vector(0)"]; result.Matches || result.Err != nil {
		t.Errorf("vector(0): got %+v, want no match", result)
	}
	if err := got.Queries["up{"].Err; err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("up{: got error %v, want a parse error", err)
	}
	if len(got.Alerts) != 1 || got.Alerts[0].Labels["alertname"] != "KubeNodeNotReady" || got.Alerts[0].Since.IsZero() {
		t.Errorf("got alerts %+v, want the one that fires", got.Alerts)
	}
}

// poll waits until a condition holds.
func poll(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
