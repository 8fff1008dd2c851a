package service_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/report"
	"github.com/runlevel/runlevel/internal/updates/service"
)

// A desk is a service with its folder and its clock.
type desk struct {
	*testing.T
	folder  string
	now     time.Time
	service *service.Service
	mu      sync.Mutex
	lines   []string
}

func newDesk(t *testing.T, files map[string]string, change func(*service.Options)) *desk {
	t.Helper()
	d := &desk{T: t, folder: t.TempDir(), now: begin.Add(24 * time.Hour)}
	writeFiles(t, d.folder, files)
	options := service.Options{
		Folder: d.folder, Reports: filepath.Join(d.folder, "reports.jsonl"), MaxAge: time.Minute,
		Now: func() time.Time { return d.now },
		Log: func(line string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lines = append(d.lines, line)
		},
	}
	if change != nil {
		change(&options)
	}
	var err error
	if d.service, err = service.New(options); err != nil {
		t.Fatal(err)
	}
	return d
}

// update lets some seconds pass.
func (d *desk) update() {
	d.Helper()
	d.now = d.now.Add(10 * time.Second)
	if err := d.service.Update(); err != nil {
		d.Fatal(err)
	}
}

func (d *desk) ask(method, path string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	d.service.Handler().ServeHTTP(answer, request)
	return answer
}

func (d *desk) graph() graphdata.Graph {
	d.Helper()
	var graph graphdata.Graph
	if err := json.Unmarshal(d.ask("GET", "/graph?channel=stable&arch=amd64").Body.Bytes(), &graph); err != nil {
		d.Fatal(err)
	}
	return graph
}

// reportOf returns a report of a cluster as JSON.
func reportOf(cluster int, condition report.Condition) string {
	return fmt.Sprintf(`{"id": "cluster-%016d", "from": "1.4.0", "version": "1.4.1", "condition": %q, "reason": "down", `+
		`"time": "2026-12-01T08:00:00Z"}`, cluster, condition)
}

func (d *desk) send(body string, change func(*http.Request)) (int, string) {
	request := httptest.NewRequest(http.MethodPost, "/reports", strings.NewReader(body))
	if change != nil {
		change(request)
	}
	answer := httptest.NewRecorder()
	d.service.Handler().ServeHTTP(answer, request)
	return answer.Code, strings.TrimSpace(answer.Body.String())
}

func TestGraphsAreServed(t *testing.T) {
	d := newDesk(t, graphFiles(""), nil)
	full := d.ask("GET", "/graph?channel=stable&arch=amd64&version=1.4.0&id=x")
	tag := full.Header().Get("ETag")
	for _, test := range []struct {
		method, path, header, value string
		code                        int
		body                        string // part
	}{
		{"GET", "/graph?channel=stable&arch=amd64", "", "", 200, `"phasedEdges":[{"edges":[{"from":"1.4.0","to":"1.4.1"}]`},
		{"GET", "/graph?channel=stable", "", "", 200, `"1.4.1"`},
		{"GET", "/stable/amd64.json", "", "", 200, `"1.4.1"`},
		{"GET", "/graph?channel=other&arch=amd64", "", "", 200, `{"version":1,"nodes":[],"edges":[],"conditionalEdges":[]}`},
		{"GET", "/graph", "", "", 400, `"kind":"missing_params"`},
		{"GET", "/stable/x86.json", "", "", 404, ""},
		{"GET", "/stable/../../etc/passwd", "", "", 307, ""},
		{"GET", "/graph?channel=stable&arch=amd64", "If-None-Match", tag, 304, ""},
		{"GET", "/stable/amd64.json", "If-None-Match", `"x", ` + tag, 304, ""},
		{"GET", "/stable/amd64.json", "If-None-Match", `"x"`, 200, "1.4.1"},
		{"HEAD", "/stable/amd64.json", "", "", 200, ""},
		{"POST", "/graph?channel=stable", "", "", 405, ""},
		{"GET", "/healthz", "", "", 200, "ok"},
		{"GET", "/metrics", "", "", 200, "\nrunlevel_updates_unchanged_total 2\n"},
	} {
		var headers []string
		if test.header != "" {
			headers = []string{test.header, test.value}
		}
		answer := d.ask(test.method, test.path, headers...)
		if answer.Code != test.code || !strings.Contains(answer.Body.String(), test.body) {
			t.Errorf("%s %s: %d %s", test.method, test.path, answer.Code, answer.Body)
		}
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "public, max-age=60", "Vary": "Accept-Encoding",
	} {
		if got := full.Header().Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	compressed := d.ask("GET", "/stable/amd64.json", "Accept-Encoding", "gzip, br")
	reader, err := gzip.NewReader(compressed.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reader)
	if err != nil || !bytes.Equal(text, full.Body.Bytes()) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestTheFolderIsFollowed: a bad edit, a good one, the end of a ramp, a halt and its end.
func TestTheFolderIsFollowed(t *testing.T) {
	d := newDesk(t, graphFiles("maxFailures: 0\n"), nil)
	state := func() string {
		graph := d.graph()
		if len(graph.PhasedEdges) > 0 {
			return strings.TrimSuffix("phased "+graph.PhasedEdges[0].Halt, " ")
		}
		return fmt.Sprint(len(graph.Edges), " open")
	}
	check := func(want string) {
		t.Helper()
		d.update()
		if got := state(); got != want {
			t.Errorf("the edge is %s, want %s", got, want)
		}
	}
	check("phased")
	phases := graphFiles("maxFailures: 0\n")["phases/1.4.1.yaml"]
	writeFiles(t, d.folder, map[string]string{"phases/1.4.1.yaml": "to: 1.4.1\nstrat: today\n"})
	check("phased")
	writeFiles(t, d.folder, map[string]string{"phases/1.4.1.yaml": phases})
	check("phased")
	want := []string{`folder: phases/1.4.1.yaml:2: strat: unknown field: did you mean start?`, "folder: works again"}
	if !slices.Equal(d.lines, want) {
		t.Errorf("log: %q", d.lines)
	}
	if code, text := d.send(reportOf(1, report.Failed), nil); code != http.StatusNoContent {
		t.Error(code, text)
	}
	check("phased 1 cluster failed, more than maxFailures 0: 1× down (1 from 192.0.2.1)")
	resumed := graphdata.Halt{To: "1.4.1", At: metav1.NewTime(d.now), Resumed: "not the update"}
	if err := graphdata.AppendHalt(d.folder, resumed); err != nil {
		t.Fatal(err)
	}
	check("phased")
	d.now = begin.Add(rampHours * time.Hour)
	check("1 open")
	if err := d.service.Close(); err != nil {
		t.Error(err)
	}
}

// TestHaltsOutsideTheFolder: the folder may be a checkout that can't be written.
func TestHaltsOutsideTheFolder(t *testing.T) {
	state := t.TempDir()
	files := graphFiles("maxFailures: 0\n")
	d := newDesk(t, files, func(o *service.Options) {
		o.State, o.Reports = state, filepath.Join(state, "reports.jsonl")
	})
	d.send(reportOf(1, report.Failed), nil)
	d.update()
	d.update()
	halts, err := os.ReadFile(filepath.Join(state, graphdata.HaltsFile))
	if err != nil || bytes.Count(halts, []byte("\n")) != 1 || d.graph().PhasedEdges[0].Halt == "" {
		t.Errorf("%s %v", halts, err)
	}
	if _, err := os.Stat(filepath.Join(d.folder, graphdata.HaltsFile)); err == nil {
		t.Error("the folder was written")
	}
	moment := d.now.Add(time.Minute).Format(time.RFC3339)
	resumed := fmt.Sprintf("- {to: 1.4.1, at: %s, resumed: not the update}\n", moment)
	d.now = d.now.Add(time.Hour)
	writeFiles(t, d.folder, map[string]string{"halts.yaml": resumed})
	if d.update(); d.graph().PhasedEdges[0].Halt != "" {
		t.Error("still halted")
	}
}

// TestAHaltThatCannotBeWritten still holds, and is written later.
func TestAHaltThatCannotBeWritten(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	d := newDesk(t, graphFiles("maxFailures: 0\n"), func(o *service.Options) { o.State = state })
	d.send(reportOf(1, report.Failed), nil)
	d.update()
	if d.graph().PhasedEdges[0].Halt == "" {
		t.Error("not halted")
	}
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	d.update()
	if halts, err := os.ReadFile(filepath.Join(state, graphdata.HaltsFile)); err != nil {
		t.Errorf("%s %v", halts, err)
	}
}

func TestReportsOfHostileClients(t *testing.T) {
	d := newDesk(t, graphFiles("after: {successes: 1}\n"), func(o *service.Options) { o.Token = "secret" })
	good := reportOf(1, report.Succeeded)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }
	for name, test := range map[string]struct {
		body   string
		change func(*http.Request)
		code   int
	}{
		"bearer token":       {good, bearer, 204},
		"password":           {good, func(r *http.Request) { r.SetBasicAuth("runlevel", "secret") }, 204},
		"no token":           {good, nil, 401},
		"wrong token":        {good, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secre") }, 401},
		"empty":              {"", bearer, 400},
		"huge":               {strings.Repeat(" ", 10<<20) + good, bearer, 413},
		"deep":               {strings.Repeat("[", 4000), bearer, 400},
		"unknown field":      {strings.Replace(good, "{", `{"more": 1, `, 1), bearer, 204},
		"control characters": {strings.Replace(good, "down", `\u001b]0;down\u0007`, 1), bearer, 400},
		"unknown version":    {strings.Replace(good, "1.4.1", "1.4.2", 1), bearer, 400},
		"two values":         {good + good, bearer, 400},
	} {
		if code, text := d.send(test.body, test.change); code != test.code || strings.Contains(text, "\n") {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	for i := range 5000 {
		d.send(reportOf(i, report.Began), bearer)
	}
	entries := 0
	skipped, err := report.Read(filepath.Join(d.folder, "reports.jsonl"), func(report.Entry) { entries++ })
	if err != nil || len(skipped) > 0 || entries != 5001 {
		t.Errorf("%d entries, %v, %v", entries, skipped, err)
	}
}

func TestAfterNeedsAToken(t *testing.T) {
	d := newDesk(t, graphFiles("after: {successes: 1}\n"), nil)
	d.send(reportOf(1, report.Succeeded), nil)
	d.update()
	if start := d.graph().PhasedEdges[0].Ramp.Start; !start.IsZero() {
		t.Error("a report without a token has opened the ramp at ", start)
	}
	if len(d.lines) != 1 || !strings.Contains(d.lines[0], "--report-token-file") {
		t.Errorf("log: %q", d.lines)
	}
}

// TestServe serves over TLS, while a slow client holds a connection, and ends cleanly.
func TestServe(t *testing.T) {
	d := newDesk(t, graphFiles(""), func(o *service.Options) { o.Now = time.Now })
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, d.folder, map[string]string{"raw/tls.crt": string(certificate), "raw/tls.key": string(key)})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		folder := filepath.Join(d.folder, "raw")
		ended <- d.service.Serve(ctx, listener, filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	}()
	slow, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "POST /reports HTTP/1.1\r\nHost: updates.example\r\nContent-Length: 4000\r\n\r\n{")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://" + listener.Addr().String() + "/stable/amd64.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), "1.4.1") {
		t.Errorf("%s %v", text, err)
	}
	slow.Close()
	client.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
