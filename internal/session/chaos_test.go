package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

// test is the control plane of these tests. Its audit log has every write, except for heartbeats.
var test = sandboxtest.New(sandbox.Options{AuditPolicy: `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources:
  - {group: coordination.k8s.io}
  - {group: events.k8s.io}
  - {group: authentication.k8s.io}
  - {group: authorization.k8s.io}
  - {group: "", resources: [events, nodes, nodes/status]}
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`})

func TestMain(m *testing.M) {
	if job := os.Getenv(mortalEnv); job != "" {
		os.Exit(beMortal(job)) // see chaos_kill_test.go
	}
	os.Exit(test.Run(m))
}

const (
	// patience is far longer than any successful operation takes.
	patience = 5 * time.Minute
	// records is the namespace of the records of all these releases.
	records = "chaos-records"
)

// connectAs makes a connection that the audit log knows by a name, and calls functions before each of its requests.
func connectAs(t testing.TB, name string, before ...func(*http.Request) error) *cluster.Cluster {
	t.Helper()
	config := configOf(t, name)
	for _, hook := range before {
		config = sandboxtest.Before(config, hook)
	}
	return sandboxtest.Connect(t, config)
}

// configOf returns the client configuration of a connection that the audit log knows by a name.
func configOf(t testing.TB, name string) *rest.Config {
	t.Helper()
	config := rest.CopyConfig(test.Sandbox(t).Config)
	config.UserAgent = name
	return config
}

// load reads a version of a release.
func load(t testing.TB, name, version, text string) *payload.Payload {
	t.Helper()
	return sandboxtest.LoadRelease(t, name, text, payload.Options{Name: name, Version: version})
}

// options are those of a run that has time, also to renew its lock.
func options() session.Options {
	return session.Options{
		Namespace: records,
		Apply:     apply.Options{Timeout: patience},
		Lock:      lock.Options{Wait: true, Duration: time.Minute},
	}
}

// mustRun runs a release that can be applied.
func mustRun(t testing.TB, c *cluster.Cluster, release *payload.Payload) *session.Outcome {
	t.Helper()
	outcome := session.Run(t.Context(), c, release, options())
	if outcome.Err != nil {
		t.Fatalf("%s %s: %v", release.Name, release.Version, outcome.Err)
	}
	return outcome
}

// isWrite reports whether a request may change something. Heartbeats and reviews don't count.
func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	return !strings.Contains(request.URL.Path, "/selfsubject") && !strings.Contains(request.URL.Path, "/leases")
}

// A proxy stands between an applier and the server. Each of its functions may be nil. What
// returns false cuts the request off, and may do so after any time.
type proxy struct {
	arrived  func(*http.Request) bool  // before it is passed on
	answered func(*http.Response) bool // before the answer is
}

// start serves the proxy with the admin's rights, and returns where.
func (p proxy) start(t testing.TB) string {
	t.Helper()
	config := test.Sandbox(t).Config
	apiServer, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(apiServer)
	if forward.Transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	forward.ModifyResponse = func(answer *http.Response) error {
		if p.answered != nil && !p.answered(answer) {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if p.arrived != nil && !p.arrived(request) {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A write is an entry of the audit log.
type write struct {
	Verb   string    `json:"verb"`
	Agent  string    `json:"userAgent"`
	Begun  time.Time `json:"requestReceivedTimestamp"`
	Object struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

func (w write) String() string {
	return fmt.Sprintf("%s %s %s/%s: %d", w.Verb, w.Object.Resource, w.Object.Namespace, w.Object.Name, w.Status.Code)
}

// auditLog has the entries of the audit log that were read.
var auditLog struct {
	sync.Mutex
	read   int64
	writes []write
}

// audited reads the writes of the audit log that are of interest. All that came before the
// call are included: audited writes something itself, and waits for its entry.
func audited(t testing.TB, interesting func(write) bool) []write {
	t.Helper()
	mark := "mark-" + rand.String(10)
	if _, err := test.Client(t).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: mark}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var found []write
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			auditLog.Lock()
			defer auditLog.Unlock()
			err := readAudit(filepath.Join(test.Sandbox(t).Logs, "audit.log"))
			exists := false
			found = nil
			for _, item := range auditLog.writes {
				exists = exists || item.Object.Name == mark
				if interesting(item) {
					found = append(found, item)
				}
			}
			return exists, err
		})
	if err != nil {
		t.Fatal("the audit log:", err)
	}
	return found
}

// readAudit reads what came to the audit log since it was read last.
func readAudit(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, auditLog.read, 1<<40))
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1 // the rest is an incomplete line
	auditLog.read += int64(whole)
	for line := range bytes.Lines(text[:whole]) {
		var item write
		if json.Unmarshal(line, &item) == nil { // a server that was killed leaves half a line
			auditLog.writes = append(auditLog.writes, item)
		}
	}
	return nil
}

// configMaps is a release of many ConfigMaps in a namespace of its own.
func configMaps(count int) string {
	var text strings.Builder
	text.WriteString("-- 0000_10_many_00.yaml --\n{apiVersion: v1, kind: Namespace, metadata: {name: NS}}\n")
	for i := range count {
		fmt.Fprintf(&text, "-- 0000_20_part-%d_%04d.yaml --\n{apiVersion: v1, kind: ConfigMap, metadata: {name: "+
			"map-%04d, namespace: NS}, data: {colour: red}}\n", i%10, i, i)
	}
	return text.String()
}
