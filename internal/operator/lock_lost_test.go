package operator

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestRunReturnsIfTheLockIsLostBeforeAReleaseIsAccepted asserts that the process can end, and so be started again. A
// real API server can't lose the Lease and never answer the watches of settings, so the server of this test does.
func TestRunReturnsIfTheLockIsLostBeforeAReleaseIsAccepted(t *testing.T) {
	t.Parallel()
	leases := &leaseServer{t: t}
	server := httptest.NewServer(leases)
	t.Cleanup(server.Close)
	c, err := cluster.Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	held, err := session.Hold(t.Context(), c, payload.DefaultName, "", lock.Options{Duration: 6 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- newStateMachine(c, Options{}).run(t.Context(), held) }()
	leases.remove()
	select {
	case err := <-ended:
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("run returned %v, want %v", err, lock.ErrLost)
		}
	case <-time.After(time.Minute):
		t.Error("run does not return")
	}
}

// A leaseServer serves each namespace, and one Lease until it is removed.
type leaseServer struct {
	t         *testing.T
	mu        sync.Mutex
	lease     *coordinationv1.Lease
	isRemoved bool
}

func (s *leaseServer) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isRemoved = true
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any = metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   "Failure",
		Reason:   metav1.StatusReasonNotFound,
		Code:     http.StatusNotFound,
	}
	switch isLease := strings.Contains(request.URL.Path, "/leases"); {
	case isLease && !s.isRemoved && request.Method != http.MethodGet:
		s.lease = &coordinationv1.Lease{}
		body, err := io.ReadAll(request.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, s.lease)
		}
		if err != nil {
			s.t.Error(err)
		}
		s.lease.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		answer = s.lease
	case isLease && !s.isRemoved && s.lease != nil:
		answer = s.lease
	case strings.HasPrefix(request.URL.Path, "/api/v1/namespaces/") && strings.Count(request.URL.Path, "/") == 4:
		answer = corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "x"},
		}
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}
