package session_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/graph"
)

// A stopper lets some writes of an applier pass, and keeps the others until it is opened
// or the applier gives them up.
type stopper struct {
	passes int64
	writes atomic.Int64
	kept   chan struct{} // closed when one is kept
	open   chan struct{}
}

func newStopper(passes int64) *stopper {
	return &stopper{passes: passes, kept: make(chan struct{}), open: make(chan struct{})}
}

func (s *stopper) look(request *http.Request) error {
	if !isWrite(request) {
		return nil
	}
	switch count := s.writes.Add(1); {
	case count <= s.passes:
		return nil
	case count == s.passes+1:
		close(s.kept)
	}
	select {
	case <-s.open:
		return nil
	case <-request.Context().Done():
		return request.Context().Err()
	}
}

// begin starts an apply that stops in the middle.
func (s *stopper) begin(t *testing.T, name, text string) <-chan *session.Outcome {
	t.Helper()
	c, release := connectAs(t, name, s.look), load(t, name, "1.0.0", text)
	o := options()
	o.Lock = lock.Options{Holder: "first", Duration: 10 * time.Second}
	ended := make(chan *session.Outcome, 1)
	go func() { ended <- session.Run(t.Context(), c, release, o) }()
	select {
	case <-s.kept:
	case outcome := <-ended:
		t.Fatalf("the apply ended before it was stopped: %v", outcome.Err)
	}
	return ended
}

func TestTwoAppliersAtOnce(t *testing.T) {
	const name = "two-appliers"
	text := configMaps(20)
	s := newStopper(8)
	first := s.begin(t, name, text)

	c, release := connectAs(t, name+"-second"), load(t, name, "1.0.0", text)
	o := options()
	o.Lock = lock.Options{Holder: "second", Duration: 10 * time.Second}
	outcome := session.Run(t.Context(), c, release, o)
	var held *lock.HeldError
	if !errors.As(outcome.Err, &held) || held.Holder.Name != "first" || held.Holder.Since.IsZero() ||
		outcome.Report != nil {
		t.Fatalf("the second one: %v, %+v", outcome.Err, outcome.Report)
	}
	if text := outcome.Err.Error(); !strings.Contains(text, "is locked by first since 20") {
		t.Errorf("the error does not name the holder of the lock and its start: %s", text)
	}
	if written := audited(t, func(w write) bool { return w.Agent == name+"-second" }); len(written) > 0 {
		t.Errorf("the second one has written: %v", written)
	}

	waits, third := make(chan lock.Holder, 1), make(chan *session.Outcome, 1)
	o.Lock = lock.Options{
		Holder:   "third",
		Duration: 10 * time.Second,
		Wait:     true,
		OnHeld:   func(held lock.Holder) { waits <- held },
	}
	go func() { third <- session.Run(t.Context(), c, release, o) }()
	if by := <-waits; by.Name != "first" {
		t.Errorf("the third one waits for %q", by.Name)
	}
	close(s.open)
	if outcome := <-first; outcome.Err != nil || counts(outcome)[object.Created] != 21 {
		t.Errorf("the first one: %v, %v", counts(outcome), outcome.Err)
	}
	if outcome := <-third; outcome.Err != nil || outcome.Mode != graph.Reconcile ||
		counts(outcome)[object.Unchanged] != 21 {
		t.Errorf("the third one: %s, %v, %v", outcome.Mode, counts(outcome), outcome.Err)
	}
}

func TestAnApplyWritesNothingAfterItLosesTheLock(t *testing.T) {
	const name = "stolen"
	s := newStopper(8)
	first := s.begin(t, name, configMaps(40))
	steal(t, name)
	checkStolen(t, <-first) // the stopped requests were in flight, and are cancelled
	if after := audited(t, func(w write) bool { return w.Agent == name }); len(after) > int(s.passes) {
		t.Errorf("%d writes after the lock was lost: %v", len(after)-int(s.passes), after[s.passes:])
	}
	if tried := s.writes.Load() - s.passes; tried > 48 {
		t.Errorf("%d writes began, more than the concurrency allows", tried)
	}
}

// An apply that waits has noted in the record what for, and must leave that to others, too.
func TestAWaitingApplyThatLosesTheLockLeavesTheRecord(t *testing.T) {
	const name = "stolen-waits"
	release := load(t, name, "1.0.0", `
-- 0000_10_base_10_namespace.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_web_10_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {sandbox.runlevel.dev/pod: hang}}
    spec: {containers: [{name: web, image: registry.example/web}]}
`)
	o := options()
	o.Lock, o.Apply.ReportWaits = lock.Options{Holder: "first", Duration: 10 * time.Second}, 100*time.Millisecond
	ended := make(chan *session.Outcome, 1)
	c := connectAs(t, name)
	go func() { ended <- session.Run(t.Context(), c, release, o) }()
	key := records + "/runlevel-release-" + name
	noted := sandboxtest.Await(t, test, corev1.SchemeGroupVersion.WithResource("configmaps"), key,
		func(config *corev1.ConfigMap) bool {
			return config != nil && strings.Contains(config.Data["record.json"], `"waits"`)
		})
	steal(t, name)
	checkStolen(t, <-ended)
	now, err := c.Client.CoreV1().ConfigMaps(records).Get(t.Context(), noted.Name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != noted.ResourceVersion {
		t.Errorf("the record was written after the lock was lost: %v\n%v", err, now.Data)
	}
}

// After Ctrl-C, requests in flight may finish. If another process takes the lock meanwhile, they
// must not.
func TestAnInterruptedApplyEndsWhenItLosesTheLock(t *testing.T) {
	r := newRelease(t)
	ctx, interrupt := context.WithCancel(t.Context())
	outcome := r.through(func(request *http.Request) error {
		if request.Method != http.MethodPatch {
			return nil
		}
		interrupt()
		steal(t, r.name)
		<-request.Context().Done() // no answer ever comes
		return context.Cause(request.Context())
	}).roll(ctx, "1.0.0", settings, func(options *session.Options) {
		options.Namespace, options.Lock = records, lock.Options{Holder: "first", Duration: 10 * time.Second}
	})
	if !errors.Is(outcome.Err, context.Canceled) || done(outcome) != "failed settings" {
		t.Errorf("%s: %v", done(outcome), outcome.Err)
	}
}

// checkStolen looks at the outcome of who lost the lock.
func checkStolen(t *testing.T, outcome *session.Outcome) {
	t.Helper()
	if !errors.Is(outcome.Err, lock.ErrLost) || !strings.Contains(outcome.Err.Error(), "thief has taken it") {
		t.Errorf("the outcome does not report who took the lock: %v", outcome.Err)
	}
}

// steal takes the lock of a release from who has it and renews it at the same time.
func steal(t *testing.T, release string) {
	t.Helper()
	leases := test.Client(t).CoordinationV1().Leases(records)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(t.Context(), "runlevel-release-"+release, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("thief")
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
