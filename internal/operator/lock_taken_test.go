package operator_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/payload"
)

// startCuttable starts an operator whose lock is short, and returns its end and a switch that cuts its connection.
func (s *stage) startCuttable(files string) (ended chan error, isCut *atomic.Bool) {
	s.t.Helper()
	s.prepare("1.0.0", files)
	s.options.LockDuration = shortLock
	isCut, ended = &atomic.Bool{}, make(chan error, 1)
	config := sandboxtest.Before(s.sandbox.Config, func(request *http.Request) error {
		if isCut.Load() {
			return &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
		}
		return nil
	})
	go func() { ended <- operator.Run(s.t.Context(), config, s.options) }()
	return ended, isCut
}

// shortLock is the duration of a lock that expires in a test.
const shortLock = 6 * time.Second

// TestOperatorExitsIfAnotherTookItsLock: while an operator is disconnected, another one takes its lock. The first one
// exits, to restart as the waiting replica.
func TestOperatorExitsIfAnotherTookItsLock(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ended, isCut := s.startCuttable(shop)
	s.until("installed", isAt("1.0.0"))
	isCut.Store(true)
	c, err := cluster.Connect(s.sandbox.Config)
	s.must(err)
	other, err := session.Hold(t.Context(), c, payload.DefaultName, system,
		lock.Options{Wait: true, Duration: 10 * time.Second})
	s.must(err)
	isCut.Store(false)
	select {
	case err := <-ended:
		if !errors.As(err, new(*lock.HeldError)) {
			t.Errorf("operator exited with error %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("operator still waits for the lock")
	}
	s.must(other.Release(nil))
}

// TestAnOutageWhileAReleaseFailsEndsNoOperator: the lock is lost between two attempts, and no other process takes it.
func TestAnOutageWhileAReleaseFailsEndsNoOperator(t *testing.T) {
	sandboxtest.SkipUnlessThorough(t)
	t.Parallel()
	s := newStage(t)
	ended, isCut := s.startCuttable(strings.ReplaceAll(shop, "name: settings", "name: Not_a_name"))
	s.until("it fails", func(v *configv1.ClusterVersion) bool {
		return strings.Contains(find(v, "Failing").Message, "Not_a_name")
	})
	isCut.Store(true)
	s.await("the lock has run out", func() bool {
		var lease coordinationv1.Lease
		s.must(s.client.Get(t.Context(),
			client.ObjectKey{Namespace: session.DefaultNamespace, Name: lock.Name(payload.DefaultName)}, &lease))
		return time.Since(lease.Spec.RenewTime.Time) > 2*shortLock // the operator has waited for answers as long
	})
	isCut.Store(false)
	s.update(s.push("1.0.1", shop))
	s.until("what corrects it is applied", func(v *configv1.ClusterVersion) bool {
		return isAt("1.0.1")(v) || len(ended) > 0
	})
	if len(ended) > 0 {
		t.Errorf("the operator has ended: %v", <-ended)
	}
}
