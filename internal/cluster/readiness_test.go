package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A startingServer is an API server that refuses everything until it has read its roles, and is ready when it has. A
// real server is too fast for a test to control the order of its answers.
type startingServer struct {
	mu      sync.Mutex
	isReady bool
	asked   int                                       // whether it is ready
	onAsked func(times int) (isReady bool)            // called before it answers
	held    func(name string) (until <-chan struct{}) // refusals that are held back
}

func (s *startingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/version" { // needs fewer roles than other paths
		return
	}
	if r.URL.Path == "/readyz" {
		if !s.becomesReady() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return
	}
	s.mu.Lock()
	isReady := s.isReady
	s.mu.Unlock()
	if isReady {
		_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`))
		return
	}
	if s.held != nil {
		if until := s.held(r.URL.Path[len(r.URL.Path)-1:]); until != nil {
			<-until
		}
	}
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
}

// becomesReady reports whether the server is ready when it is asked. It may wait for other requests.
func (s *startingServer) becomesReady() bool {
	s.mu.Lock()
	s.asked++
	times := s.asked
	s.mu.Unlock()
	isReady := s.onAsked(times)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isReady = s.isReady || isReady
	return s.isReady
}

// connectTo connects to a server, over one connection for all requests as to a real one.
func connectTo(t *testing.T, handler http.Handler) *Cluster {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := Connect(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func get(ctx context.Context, c *Cluster, name string) error {
	_, err := c.Client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	return err
}

// A server reads Roles of namespaces later than the rights of all users: only a ready server has read all roles.
func TestARefusalCountsOnceTheServerIsReady(t *testing.T) {
	server := &startingServer{onAsked: func(times int) bool { return times == 3 }}
	if err := get(t.Context(), connectTo(t, server), "a"); err != nil || server.asked != 3 {
		t.Errorf("asked %d times: %v", server.asked, err)
	}
}

// The refusal of a request may arrive when another one has found out that the server is ready: it was refused before.
func TestARefusalFromBeforeTheServerWasReadyDoesNotCount(t *testing.T) {
	isRefused, isFound := make(chan struct{}), make(chan struct{})
	server := &startingServer{
		onAsked: func(int) bool {
			<-isRefused // the delayed request
			return true
		},
		held: func(name string) <-chan struct{} {
			if name != "b" {
				return nil
			}
			close(isRefused)
			return isFound
		},
	}
	c := connectTo(t, server)
	var others sync.WaitGroup
	others.Go(func() {
		defer close(isFound)
		if err := get(t.Context(), c, "a"); err != nil {
			t.Error(err)
		}
	})
	if err := get(t.Context(), c, "b"); err != nil {
		t.Error(err)
	}
	others.Wait()
}

// A connection checks the readiness of a server once, and then not again after it was ready.
func TestReadinessIsCheckedOnce(t *testing.T) {
	server := &startingServer{onAsked: func(int) bool { return false }}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			server.mu.Lock()
			server.asked++
			server.mu.Unlock()
			return
		}
		server.ServeHTTP(w, r)
	})
	c := connectTo(t, handler)
	for range 3 {
		if err := get(t.Context(), c, "a"); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
	if server.asked != 1 {
		t.Errorf("got %d readiness checks, want 1", server.asked)
	}
}
