package uninstall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session/uninstall"
)

// mortalEnv makes this program uninstall a release, until it is killed.
const mortalEnv = "RUNLEVEL_TEST_MORTAL_UNINSTALL"

// A mortal is an uninstall in a process of its own.
type mortal struct{ Server, Release string }

func beMortal(job string) int {
	var m mortal
	err := json.Unmarshal([]byte(job), &m)
	if err == nil {
		var c *cluster.Cluster
		if c, err = cluster.Connect(&rest.Config{Host: m.Server}); err == nil {
			o := uninstall.Options{Release: m.Release, Namespace: records, Timeout: patience}
			o.Lock.Duration = patience // the test breaks it
			err = uninstallOf(context.Background(), c, o).Err
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// kill uninstalls a release, and kills the process at its write number k, counted from 1, after the server has done it
// or before the server gets it. It returns how many writes there were.
func kill(t *testing.T, release string, k int, isDone bool) (writes int, killed bool) {
	t.Helper()
	var count atomic.Int64
	var dead atomic.Bool
	var process atomic.Pointer[os.Process]
	started, ended := make(chan struct{}), make(chan struct{})
	end := func() {
		<-started
		dead.Store(true)
		_ = process.Load().Kill()
		<-ended
	}
	address := startProxy(t, func(forward http.Handler, w http.ResponseWriter, request *http.Request) {
		isOurs := isWrite(request) && int(count.Add(1)) == k
		if isOurs && !isDone || isWrite(request) && dead.Load() {
			end()
			panic(http.ErrAbortHandler)
		}
		if !isOurs {
			forward.ServeHTTP(w, request)
			return
		}
		forward.ServeHTTP(httptest.NewRecorder(), request)
		end()
		panic(http.ErrAbortHandler)
	})
	job, _ := json.Marshal(mortal{Server: address, Release: release})
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), mortalEnv+"="+string(job))
	var printed strings.Builder
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process.Store(command.Process)
	close(started)
	err := command.Wait()
	close(ended)
	if err != nil && !dead.Load() {
		t.Fatalf("the uninstall failed before it was killed: %v\n%s", err, printed.String())
	}
	return int(count.Load()), dead.Load()
}

// isWrite reports whether a request changes something, other than that the lock is still held.
func isWrite(request *http.Request) bool {
	isLease := strings.Contains(request.URL.Path, "/leases") && request.Method != http.MethodDelete
	return request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/selfsubject") && !isLease
}

// startProxy serves the API server with the admin's rights, through a function, and returns its address.
func startProxy(t *testing.T, serve func(http.Handler, http.ResponseWriter, *http.Request)) string {
	t.Helper()
	config := test.Sandbox(t).Config
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	if forward.Transport, err = rest.TransportFor(config); err != nil {
		t.Fatal(err)
	}
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) {
		w.WriteHeader(http.StatusBadGateway)
	}
	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) { serve(forward, w, request) }),
	)
	t.Cleanup(server.Close)
	return server.URL
}

// TestKilledAtEachWrite kills an uninstall at each of its writes, and runs it again: the second run deletes all
// objects.
func TestKilledAtEachWrite(t *testing.T) {
	undisturbed := newShop(t)
	undisturbed.must(whole, unready)
	all, killed := kill(t, undisturbed.name, 0, true)
	if all < 14 || killed || !undisturbed.isForgotten() {
		t.Fatalf("%d writes, killed: %t, forgotten: %t", all, killed, undisturbed.isForgotten())
	}
	var several errgroup.Group
	several.SetLimit(4)
	for k := 1; k <= all; k++ {
		several.Go(func() error {
			t.Run(fmt.Sprint("write ", k), func(t *testing.T) { killAndRepeat(t, k, k%2 == 0) })
			return nil
		})
	}
	_ = several.Wait()
}

func killAndRepeat(t *testing.T, k int, isDone bool) {
	s := newShop(t)
	s.must(whole, unready)
	if _, killed := kill(t, s.name, k, isDone); !killed {
		t.Fatal("it was not killed")
	}
	err := test.Client(t).CoordinationV1().Leases(records).Delete(t.Context(), lock.Name(s.name),
		metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if report := s.uninstall(); report.Err != nil && !s.isForgotten() {
		t.Errorf("the second run: %v", report.Err)
	}
	if existing := s.remaining(); len(existing) > 0 || !s.isForgotten() {
		t.Errorf("left: %v, forgotten: %t", existing, s.isForgotten())
	}
}
