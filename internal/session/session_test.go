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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/apply/object"
)

// neverReady has a Deployment whose pods no node can take.
const neverReady = `
-- 0000_10_web_00.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_web_web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {nodeSelector: {no: such-node}, containers: [{name: web, image: registry.example/web}]}
`

// oneSetting is a release of one ConfigMap.
const oneSetting = `
-- 0000_10_web_00.yaml --
{apiVersion: v1, kind: Namespace, metadata: {name: NS}}
-- 0000_20_web_settings.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: NS}, data: {colour: red}}
`

// hold begins a session, which is released at the end of the test.
func hold(t *testing.T, name string, options lock.Options, before ...func(*http.Request) error) *session.Session {
	t.Helper()
	s, err := session.Hold(t.Context(), connectAs(t, name, before...), name, records, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Release(nil) })
	return s
}

// TestANewPayloadSupersedesTheOneThatIsApplied: an update that waits for pods ends within seconds, reports why, and
// the next one is applied under the same lock.
func TestANewPayloadSupersedesTheOneThatIsApplied(t *testing.T) {
	for name, keeping := range map[string]*keep.Options{"superseded": nil, "superseded-kept": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := hold(t, name, lock.Options{Duration: 10 * time.Second})
			waits := make(chan struct{}, 100)
			first := session.Options{Keep: keeping,
				Apply: apply.Options{ReportWaits: 100 * time.Millisecond, OnEvent: func(event apply.Event) {
					if event.Type == apply.Waiting {
						waits <- struct{}{}
					}
				}}}
			ended := make(chan *session.Outcome, 1)
			go func() { ended <- s.Apply(t.Context(), load(t, name, "1.0.0", neverReady), first) }()
			<-waits
			outcome := s.Apply(t.Context(), load(t, name, "2.0.0", oneSetting), session.Options{})
			if outcome.Err != nil {
				t.Fatal("the second payload:", outcome.Err)
			}
			if got := <-ended; !errors.Is(got.Err, session.ErrSuperseded) {
				t.Errorf("the first ended with %v, want %v", got.Err, session.ErrSuperseded)
			}
			history := recordIn(t, name).History
			if len(history) != 2 || history[0].State != record.Completed || history[1].State != record.Partial {
				t.Errorf("the history is %+v", history)
			}
			lease, err := test.Client(t).CoordinationV1().Leases(records).Get(t.Context(), lock.Name(name),
				metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.LeaseTransitions != 0 {
				t.Errorf("the lock was not held all the time: %v, %v", lease, err)
			}
		})
	}
}

func recordIn(t *testing.T, name string) *record.Record {
	t.Helper()
	known, _, err := record.NewStore(test.Client(t), records, name).Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// An outage cuts off all requests of a session while it lasts.
type outage struct{ isOn atomic.Bool }

func (o *outage) look(request *http.Request) error {
	if o.isOn.Load() {
		return &url.Error{Op: request.Method, URL: request.URL.String(), Err: syscall.ECONNREFUSED}
	}
	return nil
}

// outageLock is the duration of a lock that the holder loses in an outage. On a busy machine, the holder could lose a
// shorter one without an outage.
const outageLock = 6 * time.Second

// A keeping is a session that keeps a release in place, and that an outage is about to interrupt.
type keeping struct {
	*session.Session
	outage      outage
	begun       chan struct{} // receives an element each time that all is applied
	interrupted chan error
	ended       chan *session.Outcome
}

// keepUntilOutage returns a session that has applied a release of one setting, and is cut off since. It has ended when
// ctx does.
func keepUntilOutage(ctx context.Context, t *testing.T, name string) *keeping {
	t.Helper()
	k := &keeping{
		begun:       make(chan struct{}, 10),
		interrupted: make(chan error, 10),
		ended:       make(chan *session.Outcome, 1),
	}
	k.Session = hold(t, name, lock.Options{Duration: outageLock, Wait: true}, k.outage.look)
	go func() {
		k.ended <- k.Apply(ctx, load(t, name, "1.0.0", oneSetting), session.Options{
			Keep: &keep.Options{}, Observer: observer{onOutcome: func(outcome *session.Outcome) {
				if outcome.IsInterrupted {
					k.interrupted <- outcome.Err
				} else {
					k.begun <- struct{}{}
				}
			}},
		})
	}()
	<-k.begun
	k.outage.isOn.Store(true)
	if err := <-k.interrupted; !errors.Is(err, lock.ErrLost) {
		t.Errorf("interrupted by %v, want %v", err, lock.ErrLost)
	}
	return k
}

// TestAnApplyWhoseContextHasEndedSupersedesNothing checks that the apply which its caller has begun instead continues.
func TestAnApplyWhoseContextHasEndedSupersedesNothing(t *testing.T) {
	t.Parallel()
	const name = "ended"
	s := hold(t, name, lock.Options{})
	begun, ended := make(chan struct{}, 1), make(chan *session.Outcome, 1)
	go func() {
		ended <- s.Apply(t.Context(), load(t, name, "1.0.0", oneSetting), session.Options{
			Keep: &keep.Options{}, Observer: observer{onOutcome: func(*session.Outcome) { begun <- struct{}{} }},
		})
	}()
	<-begun
	over, end := context.WithCancel(t.Context())
	end()
	if outcome := s.Apply(over, load(t, name, "2.0.0", oneSetting), session.Options{}); !errors.Is(outcome.Err,
		context.Canceled) {
		t.Errorf("the session ended with error %v", outcome.Err)
	}
	paint(t, name, "blue")
	awaitColour(t, name, "red")
	if len(ended) > 0 {
		t.Error("the apply that keeps its payload in place has ended:", (<-ended).Err)
	}
}

// TestASessionContinuesAfterAnOutage checks that an outage of the API server, longer than the lock lasts, interrupts a
// session that keeps a release in place. When the server answers again, the session repairs all changes.
func TestASessionContinuesAfterAnOutage(t *testing.T) {
	t.Parallel()
	const name = "outage"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := keepUntilOutage(ctx, t, name)
	paint(t, name, "blue")
	s.outage.isOn.Store(false)
	<-s.begun
	awaitColour(t, name, "red")
	paint(t, name, "green")
	awaitColour(t, name, "red")
	takeOver(t, name, "other")
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			problems := s.Kept().Problems()
			return len(problems) == 1 && problems[0].Type == keep.Failing && problems[0].Object.Name == "settings", nil
		})
	if err != nil {
		t.Errorf("the problems of the session are %v", s.Kept().Problems())
	}
	stop()
	if outcome := <-s.ended; !errors.Is(outcome.Err, context.Canceled) {
		t.Errorf("the session ended with error %v", outcome.Err)
	}
	if len(s.interrupted) > 0 {
		t.Error("the outage was reported more than once")
	}
}

// TestASessionEndsAfterAnotherApplyDuringAnOutage checks that a session ends if another process has taken the lock
// during the outage and applied something else.
func TestASessionEndsAfterAnotherApplyDuringAnOutage(t *testing.T) {
	t.Parallel()
	const name = "outage-other"
	s := keepUntilOutage(t.Context(), t, name)
	mustRun(t, connectAs(t, "other"), load(t, name, "2.0.0", strings.ReplaceAll(oneSetting, "red", "black")))
	s.outage.isOn.Store(false)
	if outcome := <-s.ended; outcome.Err == nil ||
		!strings.Contains(outcome.Err.Error(), "something else was applied") {
		t.Errorf("the session ended with error %v", outcome.Err)
	}
	awaitColour(t, name, "black")
}

// TestASessionEndsIfAnotherProcessHasTheLockAfterAnOutage checks sessions that had the lock at once, and those that
// waited for the lock at first: the release of the other process stays.
func TestASessionEndsIfAnotherProcessHasTheLockAfterAnOutage(t *testing.T) {
	t.Parallel()
	const name = "outage-taken"
	s := keepUntilOutage(t.Context(), t, name)
	hold(t, name, lock.Options{Wait: true, Duration: outageLock})
	s.outage.isOn.Store(false)
	select {
	case outcome := <-s.ended:
		if !errors.As(outcome.Err, new(*lock.HeldError)) {
			t.Errorf("the session ended with error %v", outcome.Err)
		}
	case <-time.After(10 * outageLock):
		t.Error("the session waits for the lock")
	}
}

// refusedSetting is a release whose object can't be applied.
var refusedSetting = strings.ReplaceAll(oneSetting, "name: settings", "name: Not_a_name")

// failUntilOutage returns a session whose apply has ended because an object is refused, and that has lost its lock
// since.
func failUntilOutage(t *testing.T, name string) (s *session.Session, again func() error) {
	t.Helper()
	var cut outage
	current := hold(t, name, lock.Options{Duration: outageLock, Wait: true}, cut.look)
	apply := func() error {
		return current.Apply(t.Context(), load(t, name, "1.0.0", refusedSetting),
			session.Options{Keep: &keep.Options{}}).Err
	}
	if err := apply(); !errors.As(err, new(*object.Failure)) {
		t.Fatalf("the session ended with error %v", err)
	}
	cut.isOn.Store(true)
	<-current.Held().Done()
	if err := apply(); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("during the outage: %v", err)
	}
	cut.isOn.Store(false)
	return current, apply
}

// TestAnOutageBetweenTwoAppliesEndsNoSession checks that the next apply takes the lock again, if no other process had
// it.
func TestAnOutageBetweenTwoAppliesEndsNoSession(t *testing.T) {
	t.Parallel()
	s, again := failUntilOutage(t, "outage-between")
	if err := again(); !errors.As(err, new(*object.Failure)) || s.Held().Err() != nil {
		t.Errorf("the session ended with error %v; the lock: %v", err, s.Held().Err())
	}
}

// TestASessionEndsAfterAnotherApplyBetweenTwoApplies checks that a session ends if another process has applied
// something else while the session had no lock.
func TestASessionEndsAfterAnotherApplyBetweenTwoApplies(t *testing.T) {
	t.Parallel()
	const name = "outage-between-other"
	_, again := failUntilOutage(t, name)
	mustRun(t, connectAs(t, "other"), load(t, name, "2.0.0", oneSetting))
	for range 2 {
		if err := again(); !errors.Is(err, session.ErrYielded) {
			t.Errorf("the session ended with error %v", err)
		}
	}
}

// TestAReleasedSessionDoesNotTakeTheLockAgain checks sessions whose apply has noticed that another process has the
// lock, and sessions whose apply has not.
func TestAReleasedSessionDoesNotTakeTheLockAgain(t *testing.T) {
	t.Parallel()
	const name = "outage-released"
	s := keepUntilOutage(t.Context(), t, name)
	other := hold(t, name, lock.Options{Wait: true})
	s.outage.isOn.Store(false)
	if err := s.Release(nil); err != nil {
		t.Error("the release:", err)
	}
	if outcome := <-s.ended; outcome.Err == nil {
		t.Error("the apply ended without an error")
	}
	if outcome := s.Apply(t.Context(), load(t, name, "1.0.0", oneSetting), session.Options{}); outcome.Err == nil {
		t.Error("a released session applies")
	}
	if err := other.Release(nil); err != nil {
		t.Error("the other session:", err)
	}
	free, err := (&lock.Lock{Client: test.Client(t), Namespace: records, Release: name}).Holder(t.Context())
	if err != nil || free != nil {
		t.Errorf("the lock is held by %v, %v", free, err)
	}
}

// TestAnObjectThatIsRefusedEndsASession checks that the session ends, since nothing else would end its apply.
func TestAnObjectThatIsRefusedEndsASession(t *testing.T) {
	t.Parallel()
	const name = "refused"
	s := hold(t, name, lock.Options{})
	outcome := s.Apply(t.Context(), load(t, name, "1.0.0", refusedSetting), session.Options{Keep: &keep.Options{}})
	var failure *object.Failure
	if !errors.As(outcome.Err, &failure) {
		t.Errorf("the session ended with error %v", outcome.Err)
	}
}

// paint changes the ConfigMap of the release, as kubectl does.
func paint(t *testing.T, namespace, colour string) {
	t.Helper()
	patch := []byte(`{"data": {"colour": "` + colour + `"}}`)
	if _, err := test.Client(t).CoreV1().ConfigMaps(namespace).Patch(t.Context(), "settings", types.MergePatchType,
		patch, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
}

// takeOver labels the ConfigMap as an object of another release, so that it can't be repaired.
func takeOver(t *testing.T, namespace, release string) {
	t.Helper()
	patch := []byte(`{"metadata": {"labels": {"runlevel.dev/release": "` + release + `"}}}`)
	if _, err := test.Client(t).CoreV1().ConfigMaps(namespace).Patch(t.Context(), "settings", types.MergePatchType,
		patch, metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
}

// awaitColour waits until the ConfigMap of the release has a colour.
func awaitColour(t *testing.T, namespace, colour string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			found, err := test.Client(t).CoreV1().ConfigMaps(namespace).Get(ctx, "settings", metav1.GetOptions{})
			return err == nil && found.Data["colour"] == colour, err
		})
	if err != nil {
		t.Fatalf("the ConfigMap never gets %s: %v", colour, err)
	}
}
