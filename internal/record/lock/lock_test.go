package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/text/reason"
)

const (
	leaseName = "runlevel-release-web"
	// while is far longer than a request takes on a busy machine.
	while = 15 * time.Second
)

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// lease reads the Lease of release web.
func lease(t *testing.T, namespace string) *coordinationv1.Lease {
	t.Helper()
	found, err := cluster.Client(t).CoordinationV1().Leases(namespace).Get(context.Background(), leaseName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func holder(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

// steal writes another holder into the Lease, as a client would that keeps to no rules.
func steal(t *testing.T, namespace, thief string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found := lease(t, namespace)
		found.Spec.HolderIdentity = &thief
		_, err := cluster.Client(t).CoordinationV1().Leases(namespace).Update(context.Background(), found,
			metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// of returns the lock of release web.
func of(client kubernetes.Interface, namespace string) lock.Lock {
	return lock.Lock{Client: client, Namespace: namespace, Release: "web"}
}

// under runs a function while the lock is held, and releases it also after a panic.
func under(ctx context.Context, releaseLock lock.Lock, o lock.Options, do func(ctx context.Context) error) (err error) {
	hold, err := releaseLock.Acquire(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = hold.Release(err) }()
	return do(hold.Context())
}

// tapped returns a client whose requests the test may look at, and spoil.
func tapped(t *testing.T,
	tap func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error)) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(sandboxtest.Tap(cluster.Sandbox(t).Config,
		func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
			return tap(request, func() (*http.Response, error) { return next.RoundTrip(request) })
		}))
}

// A holding is a lock that a process holds until leave is called.
type holding struct {
	leave func()
	ended chan error
}

// hold takes the lock and returns when it is taken.
func hold(t *testing.T, releaseLock lock.Lock, o lock.Options) *holding {
	t.Helper()
	taken, leave := make(chan struct{}), make(chan struct{})
	h := &holding{leave: func() { close(leave) }, ended: make(chan error, 1)}
	go func() {
		h.ended <- under(context.Background(), releaseLock, o, func(ctx context.Context) error {
			close(taken)
			select {
			case <-leave:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	select {
	case <-taken:
	case err := <-h.ended:
		t.Fatal("the lock is not taken:", err)
	}
	return h
}

func (h *holding) end(t *testing.T) {
	t.Helper()
	h.leave()
	if err := <-h.ended; err != nil {
		t.Error("the error of the holder:", err)
	}
}

func TestSecondProcessWaitsForTheHolder(t *testing.T) {
	namespace := cluster.Namespace(t)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	item := of(cluster.Client(t), namespace)
	item.Now = func() time.Time { return since }
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)

	first := hold(t, item, lock.Options{Holder: "anna", Duration: while})
	unchanged := make(chan lock.Holder, 10)
	waiting := lock.Options{
		Holder:   "ben",
		Duration: 3 * time.Second,
		Wait:     true,
		OnHeld:   func(h lock.Holder) { unchanged <- h },
	}
	second, looks := make(chan error, 1), make(chan struct{}, 1000)
	client := tapped(t, func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.Method == http.MethodGet {
			looks <- struct{}{}
		}
		return send()
	})
	go func() {
		second <- under(t.Context(), of(client, namespace), waiting, func(context.Context) error {
			select {
			case err := <-first.ended:
				return err
			default:
				return errors.New("both hold the lock")
			}
		})
	}()
	held := <-unchanged
	if held.Name != "anna" || !held.Since.Equal(since) {
		t.Errorf("the second process gets holder %+v, want anna since %s", held, since)
	}
	// The first is seen to be alive, though its clock stands still.
	before := lease(t, namespace)
	sandboxtest.Await(t, cluster, leases, namespace+"/"+leaseName, func(l *coordinationv1.Lease) bool {
		return l != nil && l.ResourceVersion != before.ResourceVersion
	})
	for len(looks) > 0 {
		<-looks
	}
	for range 2 { // the begin of a second look shows that the first has ended
		select {
		case <-looks:
		case err := <-second:
			t.Fatal("the second did not wait:", err)
		}
	}
	first.leave()
	if err := <-second; err != nil {
		t.Error("the second:", err)
	}
	if len(unchanged) > 0 {
		t.Errorf("got a second report of holder %+v, want one report", <-unchanged)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("the lock is held by %q in the end", got)
	}
	klog.Flush()
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "watch ended with error") { // the message of Await above
			t.Errorf("users see a log of client-go: %s", line)
		}
	}
}

func TestSecondLeavesIfFirstIsAlive(t *testing.T) {
	namespace := cluster.Namespace(t)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	item, two := of(cluster.Client(t), namespace), of(cluster.Client(t), namespace)
	item.Now = func() time.Time { return since }
	two.Now = func() time.Time { return since.Add(75 * time.Second) }
	if held, err := two.Holder(t.Context()); held != nil || err != nil {
		t.Errorf("before anybody came, the lock is held by %v, error %v", held, err)
	}
	first := hold(t, item, lock.Options{Holder: "anna@laptop:1-\x1b[31m", Duration: while})
	defer first.end(t)

	message := 0
	err := under(t.Context(), two, lock.Options{OnHeld: func(lock.Holder) { message++ }}, func(context.Context) error {
		t.Error("both hold the lock")
		return nil
	})
	want := `release "web" is locked by anna@laptop:1-\x1b[31m since 2026-01-02T03:04:05Z (75s ago)`
	if err == nil || err.Error() != want || message != 1 {
		t.Errorf("after %d words before, the error is\n%v, want\n%s", message, err, want)
	}
	var held *lock.HeldError
	if !errors.As(err, &held) || reason.Of(err) != lock.ReasonHeld {
		t.Errorf("the error has reason %q, want a HeldError of reason %s", reason.Of(err), lock.ReasonHeld)
	}
	looked, err := two.Holder(t.Context())
	if err != nil || looked == nil || looked.Name != "anna@laptop:1-\x1b[31m" || !looked.Since.Equal(since) {
		t.Errorf("the lock is held by %v, error %v", looked, err)
	}
}

// TestContainerTakesTheLockOfItsLastProcess: after kill -9, the kubelet starts the container again at once. The lock
// lasts for half an hour, in which other containers have to wait.
func TestContainerTakesTheLockOfItsLastProcess(t *testing.T) {
	namespace := cluster.Namespace(t)
	item := of(cluster.Client(t), namespace)
	const container = "operator-1_7c1b"
	killed, err := item.Acquire(t.Context(),
		lock.Options{Container: container, Keeps: true, Duration: 30 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	before := lease(t, namespace)
	if !strings.HasPrefix(holder(before), container+"_") {
		t.Errorf("the lock is held by %q, which does not begin with its container", holder(before))
	}
	for _, other := range []string{"", "operator-1_7c1b2"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if hold, err := item.Acquire(ctx,
			lock.Options{Container: other, Keeps: true, Wait: true, Duration: time.Second}); err == nil {
			t.Errorf("container %q has the lock of %s: %v", other, container, hold.Release(nil))
		}
	}
	next, err := item.Acquire(t.Context(), lock.Options{Container: container, Keeps: true, Duration: 30 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	after := lease(t, namespace)
	if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions+1 {
		t.Errorf("the term went from %d to %d, want the next one", *before.Spec.LeaseTransitions,
			*after.Spec.LeaseTransitions)
	}
	if err := next.Release(nil); err != nil {
		t.Error(err)
	}
	if err := killed.Release(nil); err == nil && holder(lease(t, namespace)) != "" {
		t.Error("the killed process still holds the lock")
	}
}

// The clock of the holder is hours ahead, and for all that it is taken for dead.
func TestLockOfADeadProcessIsTakenOver(t *testing.T) {
	namespace := cluster.Namespace(t)
	ahead := metav1.NewMicroTime(time.Now().Add(5 * time.Hour))
	_, err := cluster.Client(t).CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("the late anna"), LeaseDurationSeconds: ptr.To[int32](1), AcquireTime: &ahead,
			RenewTime: &ahead,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var unchanged []string
	options := lock.Options{
		Holder:   "ben",
		Duration: 5 * time.Second,
		OnHeld:   func(h lock.Holder) { unchanged = append(unchanged, h.Name) },
	}
	err = under(t.Context(), of(cluster.Client(t), namespace), options, func(context.Context) error {
		if got := lease(t, namespace); holder(got) != "ben" || !got.Spec.AcquireTime.Before(&ahead) {
			t.Errorf("the lock is held by %s since %s, want ben, since now", holder(got), got.Spec.AcquireTime)
		}
		return nil
	})
	if err != nil || len(unchanged) != 1 || unchanged[0] != "the late anna" {
		t.Errorf("got %q, error %v", unchanged, err)
	}
}

func TestLockOutlivesAShortOutage(t *testing.T) {
	namespace, s := cluster.Namespace(t), cluster.Sandbox(t)
	noticed := make(chan struct{}, 1000)
	client := tapped(t, func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		response, err := send()
		if err != nil {
			noticed <- struct{}{}
		}
		return response, err
	})
	options := lock.Options{Holder: "anna", Duration: 45 * time.Second}
	err := under(t.Context(), of(client, namespace), options, func(ctx context.Context) error {
		if err := s.Kill(sandbox.APIServer); err != nil {
			return err
		}
		<-noticed
		if err := s.Resume(t.Context(), sandbox.APIServer); err != nil {
			return err
		}
		before := lease(t, namespace)
		sandboxtest.Await(t, cluster, leases, namespace+"/"+leaseName, func(l *coordinationv1.Lease) bool {
			return ctx.Err() != nil || l.ResourceVersion != before.ResourceVersion
		})
		return context.Cause(ctx)
	})
	if err != nil {
		t.Error(err)
	}
	if got := lease(t, namespace); holder(got) != "" || ptr.Deref(got.Spec.LeaseTransitions, 0) != 0 {
		t.Errorf("in the end the lock is held by %q, after %d changes", holder(got), *got.Spec.LeaseTransitions)
	}
}

// The server refuses all writes, for example by its configuration.
func TestLostLockIsFreedAfterTheWorkHasEnded(t *testing.T) {
	namespace := cluster.Namespace(t)
	var isShut atomic.Bool
	var freed atomic.Int32
	client := tapped(t, func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.Method != http.MethodPut || !isShut.Load() {
			return send()
		}
		body, err := io.ReadAll(request.Body)
		if err == nil && !bytes.Contains(body, []byte("anna")) {
			freed.Add(1)
		}
		return nil, errors.New("the door is shut")
	})
	options := lock.Options{Holder: "anna", Duration: time.Second}
	err := under(t.Context(), of(client, namespace), options, func(ctx context.Context) error {
		isShut.Store(true)
		<-ctx.Done()
		if freed.Load() > 0 {
			t.Error("the lock was freed before the end of the work")
		}
		isShut.Store(false)
		return ctx.Err()
	})
	if !errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), "the door is shut") {
		t.Errorf("the error is %v, want that the lock is lost, and why", err)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("in the end the lock is held by %q", got)
	}
}

func TestLockIsLostInALongOutage(t *testing.T) {
	namespace, s := cluster.Namespace(t), cluster.Sandbox(t)
	options := lock.Options{Holder: "anna", Duration: time.Second}
	err := under(t.Context(), of(cluster.Client(t), namespace), options, func(ctx context.Context) error {
		if err := s.Kill(sandbox.APIServer); err != nil {
			return err
		}
		<-ctx.Done()
		if err := s.Resume(t.Context(), sandbox.APIServer); err != nil {
			return err
		}
		if got := holder(lease(t, namespace)); got != "anna" {
			t.Errorf("what ran has not ended, and the lock is held by %q", got)
		}
		return ctx.Err()
	})
	if !errors.Is(err, lock.ErrLost) || reason.Of(err) != lock.ReasonLost || strings.Contains(err.Error(), "\n") ||
		!strings.HasPrefix(err.Error(), `release "web": the lock is lost: it could not be renewed for 666.666666ms: `) {
		t.Errorf("the error is %v, want that the lock is lost, and why", err)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("in the end the lock is held by %q", got)
	}
}

func TestLockIsLostToAThief(t *testing.T) {
	namespace := cluster.Namespace(t)
	options := lock.Options{Holder: "anna", Duration: while}
	err := under(t.Context(), of(cluster.Client(t), namespace), options, func(ctx context.Context) error {
		steal(t, namespace, "a thief")
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), lock.ErrLost) {
			t.Errorf("the context ends with %v", context.Cause(ctx))
		}
		return errors.New("half of the work is done")
	})
	want := `release "web": the lock is lost: a thief has taken it (half of the work is done)`
	if !errors.Is(err, lock.ErrLost) || !lock.IsTaken(err) || err.Error() != want {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
	if got := holder(lease(t, namespace)); got != "a thief" {
		t.Errorf("in the end the lock is held by %q, want the thief", got)
	}
}

// The theft is not noticed before what ran ends.
func TestLockOfAThiefIsNotFreed(t *testing.T) {
	namespace := cluster.Namespace(t)
	options := lock.Options{Holder: "anna", Duration: time.Hour}
	err := under(t.Context(), of(cluster.Client(t), namespace), options, func(context.Context) error {
		steal(t, namespace, "a thief")
		return nil
	})
	if got := holder(lease(t, namespace)); err != nil || got != "a thief" {
		t.Errorf("in the end the lock is held by %q, want the thief; error %v", got, err)
	}
}

func TestLockIsFreedAfterAnyEnd(t *testing.T) {
	failure := errors.New("it went wrong")
	tests := map[string]struct {
		do   func(context.Context, context.CancelCauseFunc) error
		want error
	}{
		"done":     {func(context.Context, context.CancelCauseFunc) error { return nil }, nil},
		"failed":   {func(context.Context, context.CancelCauseFunc) error { return failure }, failure},
		"panicked": {func(context.Context, context.CancelCauseFunc) error { panic(failure) }, failure},
		"cancelled": {func(ctx context.Context, end context.CancelCauseFunc) error {
			end(failure)
			<-ctx.Done()
			return context.Cause(ctx)
		}, failure},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			var err error
			func() {
				defer func() {
					if thrown := recover(); thrown != nil {
						err = thrown.(error)
					}
				}()
				err = under(ctx, of(cluster.Client(t), namespace), lock.Options{Holder: "anna"},
					func(ctx context.Context) error {
						result := test.do(ctx, end)
						if got := holder(lease(t, namespace)); got != "anna" {
							t.Errorf("the lock is held by %q during the work of its holder", got)
						}
						return result
					})
			}()
			if !errors.Is(err, test.want) {
				t.Errorf("the error is %v, want %v", err, test.want)
			}
			if got := holder(lease(t, namespace)); got != "" {
				t.Errorf("in the end the lock is held by %q", got)
			}
		})
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	namespace := cluster.Namespace(t)
	first := hold(t, of(cluster.Client(t), namespace), lock.Options{Holder: "anna"})
	defer first.end(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	err := under(ctx, of(cluster.Client(t), namespace),
		lock.Options{Wait: true, OnHeld: func(lock.Holder) { end() }},
		func(context.Context) error { t.Error("both hold the lock"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want a cancelled context", err)
	}
	if got := holder(lease(t, namespace)); got != "anna" {
		t.Errorf("the lock is held by %q, want anna", got)
	}
}

func TestLockCreatesItsNamespace(t *testing.T) {
	namespace := cluster.Namespace(t) + "-absent"
	done := false
	err := under(t.Context(), of(cluster.Client(t), namespace), lock.Options{}, func(context.Context) error {
		done = true
		return nil
	})
	if err != nil || !done {
		t.Errorf("in a missing namespace: done %t, error %v", done, err)
	}
	if got := lease(t, namespace).Labels; got[lock.Label] != "web" {
		t.Errorf("the Lease has labels %v", got)
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	namespace := cluster.Namespace(t)
	locked := func(releaseLock lock.Lock) error {
		return under(t.Context(), releaseLock, lock.Options{Wait: true}, func(context.Context) error {
			return errors.New("it is locked")
		})
	}
	tests := map[string]struct {
		may  []rbacv1.PolicyRule
		do   func(l lock.Lock) error
		want string
	}{
		"lock, no rights": {nil, locked,
			`get leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `},
		"lock, only look": {
			[]rbacv1.PolicyRule{{
				Verbs:     []string{"get"},
				APIGroups: []string{"coordination.k8s.io"},
				Resources: []string{"leases"},
			}},
			locked, `create leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `,
		},
		"holding": {
			nil, func(l lock.Lock) error { _, err := l.Holder(t.Context()); return err },
			`get leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client, account := weak(t, namespace, test.may)
			err := test.do(of(client, namespace))
			if err == nil || !strings.HasPrefix(err.Error(), `release "web": `+test.want) ||
				!strings.Contains(err.Error(), account) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is\n%v, want the release, %q and %s in one line", err, test.want, account)
			}
			if got := reason.Of(err); got != lock.ReasonDenied {
				t.Errorf("its reason is %q, want %s", got, lock.ReasonDenied)
			}
		})
	}
}

// weak is the client of a service account that may do little, and how the server calls it.
func weak(t *testing.T, namespace string, may []rbacv1.PolicyRule) (kubernetes.Interface, string) {
	t.Helper()
	name := "weak-" + rand.String(5)
	client := kubernetes.NewForConfigOrDie(cluster.Account(t, namespace, name, may...))
	for _, rule := range may {
		awaitRight(t, client, authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		})
	}
	return client, "system:serviceaccount:" + namespace + ":" + name
}

// awaitRight waits until the server has taken notice of a right.
func awaitRight(t *testing.T, client kubernetes.Interface, right authorizationv1.ResourceAttributes) {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review,
				metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		})
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing is refused since the namespace is missing, which the server takes its time for.
func TestMissingNamespaceIsCreatedFirst(t *testing.T) {
	namespace := cluster.Namespace(t) + "-unmade"
	var asked []string
	var mu sync.Mutex
	client := tapped(t, func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		answer, err := send()
		mu.Lock()
		defer mu.Unlock()
		if err == nil && path.Base(request.URL.Path) != leaseName {
			asked = append(asked, fmt.Sprint(request.Method, " ", path.Base(request.URL.Path), " ", answer.StatusCode))
		}
		return answer, err
	})
	err := under(t.Context(), of(client, namespace), lock.Options{}, func(context.Context) error { return nil })
	want := []string{"GET " + namespace + " 404", "POST namespaces 201", "GET " + namespace + " 200", "POST leases 201"}
	if err != nil || !slices.Equal(asked, want) {
		t.Errorf("got requests %q, want %q; error %v", asked, want, err)
	}
}

func TestNamesOfReleasesAreChecked(t *testing.T) {
	for _, name := range []string{"", "Web", "a/b", "a.b", "-", strings.Repeat("a", 64)} {
		want := fmt.Sprintf("release name %q: use up to 63 lower-case letters, digits and dashes, with a letter or "+
			"digit at both ends", name)
		releaseLock := lock.Lock{Namespace: "shop", Release: name}
		_, err := releaseLock.Acquire(t.Context(), lock.Options{})
		_, looked := releaseLock.Holder(t.Context())
		if err == nil || err.Error() != want || looked == nil || looked.Error() != want {
			t.Errorf("the errors are\n%v and\n%v, want\n%s", err, looked, want)
		}
	}
}
