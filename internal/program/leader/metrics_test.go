package leader

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/program/webserver"
)

// answers are those of an API server on which another replica holds the Lease, and that knows and allows everybody.
var answers = map[string]string{
	"GET /readyz": `ok`,
	"GET /api":    `{"kind": "APIVersions", "versions": ["v1"]}`,
	"GET /apis":   `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`,
	"GET /api/v1": `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{"name": "nodes", "kind": "Node", "namespaced": false, "verbs": ["list"]}]}`,
	"GET /apis/coordination.k8s.io/v1/namespaces/here/leases/it": `{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "it", "namespace": "here"},
		"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}`,
	"POST /apis/authentication.k8s.io/v1/tokenreviews": `{"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
		"status": {"authenticated": true, "user": {"username": "prometheus"}}}`,
	"POST /apis/authorization.k8s.io/v1/subjectaccessreviews": `{"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`,
}

// TestAReplicaThatWaitsServesMetrics checks that a replica without the Lease may ask the API server who scrapes.
func TestAReplicaThatWaitsServesMetrics(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, isKnown := answers[r.Method+" "+r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !isKnown {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	program := Program{Name: "it", Namespace: "here",
		SetUp: func(context.Context, ctrl.Manager, func() bool) (Controllers, error) {
			return Controllers{
				Metrics: Metrics{Leads: "it_leads", Collect: func(chan<- prometheus.Metric) {}},
				Awaited: &corev1.Node{},
			}, nil
		}}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- program.Run(ctx, &rest.Config{Host: server.URL},
			Options{Name: "waits", Metrics: webserver.Serving{Address: address}})
	}()
	var last string
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) {
			last = scrape(t, address)
			return strings.Contains(last, "\nit_leads 0\n"), nil
		})
	if err != nil {
		t.Errorf("the last answer: %s", last)
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("the replica ended with error %v", err)
	}
}

// scrape returns the response to a client with a token.
func scrape(t *testing.T, address string) string {
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer token")
	answer, err := web.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.Status, "\n", string(text), err)
}
