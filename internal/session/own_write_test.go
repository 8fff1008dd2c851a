package session_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
)

// TestAnOutageAtTheWriteOfTheRecordEndsNoSession has an outage of the API server when the next version is recorded.
// Only this session has applied anything, whether its write has arrived or not, and whichever version it applies after
// the outage.
func TestAnOutageAtTheWriteOfTheRecordEndsNoSession(t *testing.T) {
	blue, green := strings.ReplaceAll(oneSetting, "red", "blue"), strings.ReplaceAll(oneSetting, "red", "green")
	for name, c := range map[string]struct {
		arrives       bool
		version, want string // applied after the outage
	}{
		"outage-write-lost":        {false, "1.0.1", "blue"},
		"outage-answer-lost":       {true, "1.0.1", "blue"},
		"outage-write-lost-other":  {false, "1.0.2", "green"},
		"outage-answer-lost-other": {true, "1.0.2", "green"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var isNear, isOn atomic.Bool // the outage begins with the next write of the record; it has begun
			config := sandboxtest.Tap(configOf(t, name),
				func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
					isRecord := request.Method == http.MethodPut &&
						strings.HasSuffix(request.URL.Path, "/configmaps/"+lock.Name(name))
					if isRecord && isNear.Load() && isOn.CompareAndSwap(false, true) && c.arrives {
						if response, err := send.RoundTrip(request); err == nil {
							_ = response.Body.Close()
						}
					}
					if isOn.Load() {
						return nil, &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
					}
					return send.RoundTrip(request)
				})
			s, err := session.Hold(t.Context(), sandboxtest.Connect(t, config), name, records,
				lock.Options{Duration: outageLock, Wait: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Release(nil) })
			if outcome := s.Apply(t.Context(), load(t, name, "1.0.0", oneSetting),
				session.Options{}); outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
			isNear.Store(true)
			if outcome := s.Apply(t.Context(), load(t, name, "1.0.1", blue),
				session.Options{Keep: &keep.Options{}}); outcome.Err == nil || outcome.Report != nil {
				t.Errorf("got error %v after the record could not be written", outcome.Err)
			}
			<-s.Held().Done()
			isNear.Store(false)
			isOn.Store(false)
			files := map[string]string{"1.0.1": blue, "1.0.2": green}[c.version]
			if outcome := s.Apply(t.Context(), load(t, name, c.version, files), session.Options{}); outcome.Err != nil {
				t.Fatalf("after the outage, %s is not applied: %v", c.version, outcome.Err)
			}
			awaitColour(t, name, c.want)
		})
	}
}

// TestAReleaseThatIsUninstalledDuringAnOutageIsNotInstalledAgain checks the session that the outage interrupts.
func TestAReleaseThatIsUninstalledDuringAnOutageIsNotInstalledAgain(t *testing.T) {
	t.Parallel()
	const name = "outage-uninstalled"
	var isOn atomic.Bool
	config := sandboxtest.Before(configOf(t, name), func(request *http.Request) error {
		if isOn.Load() {
			return &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
		}
		return nil
	})
	s, err := session.Hold(t.Context(), sandboxtest.Connect(t, config), name, records,
		lock.Options{Duration: outageLock, Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release(nil) })
	if outcome := s.Apply(t.Context(), load(t, name, "1.0.0", oneSetting), session.Options{}); outcome.Err != nil {
		t.Fatal(outcome.Err)
	}
	isOn.Store(true)
	<-s.Held().Done()
	direct := sandboxtest.Connect(t, configOf(t, name)).Client
	if err := errors.Join(
		direct.CoreV1().ConfigMaps(records).Delete(t.Context(), lock.Name(name), metav1.DeleteOptions{}),
		direct.CoordinationV1().Leases(records).Delete(t.Context(), lock.Name(name), metav1.DeleteOptions{}),
		direct.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			_, err := direct.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		}); err != nil {
		t.Fatal("the namespace is not deleted: ", err)
	}
	isOn.Store(false)
	if outcome := s.Apply(t.Context(), load(t, name, "1.0.0", oneSetting), session.Options{}); !errors.Is(outcome.Err,
		session.ErrYielded) {
		t.Errorf("the session ended with error %v, want %v", outcome.Err, session.ErrYielded)
	}
}
