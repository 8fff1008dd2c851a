package record_test

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

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/pkg/reason"
	"github.com/runlevel/runlevel/pkg/record"
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
	found, err := cluster.Client(t).CoordinationV1().Leases(namespace).Get(context.Background(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func holder(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

// steal writes another holder into the Lease, as somebody would who keeps to no rules.
func steal(t *testing.T, namespace, thief string) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found := lease(t, namespace)
		found.Spec.HolderIdentity = &thief
		_, err := cluster.Client(t).CoordinationV1().Leases(namespace).Update(context.Background(), found, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A holding is a lock that somebody holds until told to leave.
type holding struct {
	leave func()
	ended chan error
}

// hold takes the lock and returns when it is taken.
func hold(t *testing.T, s *record.Store, l record.Lock) *holding {
	t.Helper()
	taken, leave := make(chan struct{}), make(chan struct{})
	h := &holding{leave: func() { close(leave) }, ended: make(chan error, 1)}
	go func() {
		h.ended <- s.Locked(context.Background(), l, func(ctx context.Context, _ *record.Hold) error {
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
		t.Error("who held the lock says:", err)
	}
}

func TestSecondWaitsAndIsToldForWhom(t *testing.T) {
	namespace := cluster.Namespace(t)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := record.NewStore(cluster.Client(t), namespace, "web")
	one.Now = func() time.Time { return since }
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)

	first := hold(t, one, record.Lock{Holder: "anna", Duration: while})
	told := make(chan record.Held, 10)
	waiting := record.Lock{Holder: "ben", Duration: 3 * time.Second, Wait: true, Say: func(h record.Held) { told <- h }}
	second, looks := make(chan error, 1), make(chan struct{}, 1000)
	client := tapped(t, func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if request.Method == http.MethodGet {
			looks <- struct{}{}
		}
		return send()
	})
	go func() {
		second <- record.NewStore(client, namespace, "web").Locked(t.Context(), waiting, func(context.Context, *record.Hold) error {
			select {
			case err := <-first.ended:
				return err
			default:
				return errors.New("both hold the lock")
			}
		})
	}()
	held := <-told
	if held.Holder != "anna" || !held.Since.Equal(since) {
		t.Errorf("the second is told %+v, want anna since %s", held, since)
	}
	// The first is seen to be alive, though its clock stands still.
	before := lease(t, namespace)
	sandboxtest.Await(t, cluster, leases, namespace+"/"+leaseName, func(l *coordinationv1.Lease) bool {
		return l != nil && l.ResourceVersion != before.ResourceVersion
	})
	for len(looks) > 0 {
		<-looks
	}
	for range 2 { // when it begins to look again, it has seen that
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
	if len(told) > 0 {
		t.Errorf("it is told more than once: %+v", <-told)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("the lock is held by %q in the end", got)
	}
	klog.Flush()
	if log.Len() > 0 {
		t.Errorf("users see what is none of their business:\n%s", &log)
	}
}

func TestSecondLeavesIfFirstIsAlive(t *testing.T) {
	namespace := cluster.Namespace(t)
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one, two := record.NewStore(cluster.Client(t), namespace, "web"), record.NewStore(cluster.Client(t), namespace, "web")
	one.Now = func() time.Time { return since }
	two.Now = func() time.Time { return since.Add(75 * time.Second) }
	if held, err := two.Holding(t.Context()); held != nil || err != nil {
		t.Errorf("before anybody came, the lock is held by %v, error %v", held, err)
	}
	first := hold(t, one, record.Lock{Holder: "anna@laptop:1-\x1b[31m", Duration: while})
	defer first.end(t)

	says := 0
	err := two.Locked(t.Context(), record.Lock{Say: func(record.Held) { says++ }}, func(context.Context, *record.Hold) error {
		t.Error("both hold the lock")
		return nil
	})
	want := `release "web" is being applied by anna@laptop:1-\x1b[31m since 2026-01-02T03:04:05Z (75s ago): wait with --wait-lock, or try again later`
	if err == nil || err.Error() != want || says != 1 {
		t.Errorf("after %d words before, it says\n%v, want\n%s", says, err, want)
	}
	var held *record.HeldError
	if !errors.As(err, &held) || reason.Of(err) != record.ReasonHeld {
		t.Errorf("the error has reason %q, want a HeldError of reason %s", reason.Of(err), record.ReasonHeld)
	}
	looked, err := two.Holding(t.Context())
	if err != nil || looked == nil || looked.Holder != "anna@laptop:1-\x1b[31m" || !looked.Since.Equal(since) {
		t.Errorf("the lock is held by %v, error %v", looked, err)
	}
}

// The clock of the holder is hours ahead, and for all that it is taken for dead.
func TestLockOfTheDeadIsTakenOver(t *testing.T) {
	namespace := cluster.Namespace(t)
	ahead := metav1.NewMicroTime(time.Now().Add(5 * time.Hour))
	_, err := cluster.Client(t).CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("the late anna"), LeaseDurationSeconds: ptr.To[int32](1), AcquireTime: &ahead, RenewTime: &ahead,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	lock := record.Lock{Holder: "ben", Duration: 5 * time.Second, Say: func(h record.Held) { told = append(told, h.Holder) }}
	err = record.NewStore(cluster.Client(t), namespace, "web").Locked(t.Context(), lock, func(context.Context, *record.Hold) error {
		if got := lease(t, namespace); holder(got) != "ben" || !got.Spec.AcquireTime.Before(&ahead) {
			t.Errorf("the lock is held by %s since %s, want ben, since now", holder(got), got.Spec.AcquireTime)
		}
		return nil
	})
	if err != nil || len(told) != 1 || told[0] != "the late anna" {
		t.Errorf("it says %q, error %v", told, err)
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
	lock := record.Lock{Holder: "anna", Duration: 45 * time.Second}
	err := record.NewStore(client, namespace, "web").Locked(t.Context(), lock, func(ctx context.Context, _ *record.Hold) error {
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

// The server lets nobody write, for example because it was told so.
func TestLostLockIsNotFreedBeforeWhatRanHasEnded(t *testing.T) {
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
	lock := record.Lock{Holder: "anna", Duration: time.Second}
	err := record.NewStore(client, namespace, "web").Locked(t.Context(), lock, func(ctx context.Context, _ *record.Hold) error {
		isShut.Store(true)
		<-ctx.Done()
		if freed.Load() > 0 {
			t.Error("it was to be freed already")
		}
		isShut.Store(false)
		return ctx.Err()
	})
	if !errors.Is(err, record.ErrLost) || !strings.Contains(err.Error(), "the door is shut") {
		t.Errorf("it says %v, want that the lock is lost, and why", err)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("in the end the lock is held by %q", got)
	}
}

func TestLockIsLostInALongOutage(t *testing.T) {
	namespace, s := cluster.Namespace(t), cluster.Sandbox(t)
	lock := record.Lock{Holder: "anna", Duration: time.Second}
	err := record.NewStore(cluster.Client(t), namespace, "web").Locked(t.Context(), lock, func(ctx context.Context, _ *record.Hold) error {
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
	if !errors.Is(err, record.ErrLost) || reason.Of(err) != record.ReasonLost || strings.Contains(err.Error(), "\n") ||
		!strings.HasPrefix(err.Error(), `release "web": the lock is lost: it could not be renewed for 666.666666ms: `) {
		t.Errorf("it says %v, want that the lock is lost, and why", err)
	}
	if got := holder(lease(t, namespace)); got != "" {
		t.Errorf("in the end the lock is held by %q", got)
	}
}

func TestLockIsLostToAThief(t *testing.T) {
	namespace := cluster.Namespace(t)
	lock := record.Lock{Holder: "anna", Duration: while}
	err := record.NewStore(cluster.Client(t), namespace, "web").Locked(t.Context(), lock, func(ctx context.Context, _ *record.Hold) error {
		steal(t, namespace, "a thief")
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), record.ErrLost) {
			t.Errorf("the context ends with %v", context.Cause(ctx))
		}
		return errors.New("half of it is done")
	})
	want := `release "web": the lock is lost: a thief has taken it (half of it is done)`
	if !errors.Is(err, record.ErrLost) || !record.IsTaken(err) || err.Error() != want {
		t.Errorf("it says\n%v, want\n%s", err, want)
	}
	if got := holder(lease(t, namespace)); got != "a thief" {
		t.Errorf("in the end the lock is held by %q, want the thief", got)
	}
}

// Nobody has noticed the theft when what ran ends.
func TestLockOfAThiefIsNotFreed(t *testing.T) {
	namespace := cluster.Namespace(t)
	lock := record.Lock{Holder: "anna", Duration: time.Hour}
	err := record.NewStore(cluster.Client(t), namespace, "web").Locked(t.Context(), lock, func(context.Context, *record.Hold) error {
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
				err = record.NewStore(cluster.Client(t), namespace, "web").Locked(ctx, record.Lock{Holder: "anna"}, func(ctx context.Context, _ *record.Hold) error {
					result := test.do(ctx, end)
					if got := holder(lease(t, namespace)); got != "anna" {
						t.Errorf("the lock is held by %q while it is used", got)
					}
					return result
				})
			}()
			if !errors.Is(err, test.want) {
				t.Errorf("it says %v, want %v", err, test.want)
			}
			if got := holder(lease(t, namespace)); got != "" {
				t.Errorf("in the end the lock is held by %q", got)
			}
		})
	}
}

func TestWaitingCanBeEnded(t *testing.T) {
	namespace := cluster.Namespace(t)
	first := hold(t, record.NewStore(cluster.Client(t), namespace, "web"), record.Lock{Holder: "anna"})
	defer first.end(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	err := record.NewStore(cluster.Client(t), namespace, "web").Locked(ctx,
		record.Lock{Wait: true, Say: func(record.Held) { end() }},
		func(context.Context, *record.Hold) error { t.Error("both hold the lock"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v, want that it was cancelled", err)
	}
	if got := holder(lease(t, namespace)); got != "anna" {
		t.Errorf("the lock is held by %q, want anna", got)
	}
}

func TestLockMakesItsNamespace(t *testing.T) {
	namespace := cluster.Namespace(t) + "-absent"
	done := false
	err := record.NewStore(cluster.Client(t), namespace, "web").Locked(t.Context(), record.Lock{}, func(context.Context, *record.Hold) error {
		done = true
		return nil
	})
	if err != nil || !done {
		t.Errorf("in a namespace that was not there, it is done: %t, error %v", done, err)
	}
	if got := lease(t, namespace).Labels; got[record.Label] != "web" {
		t.Errorf("the Lease has labels %v", got)
	}
}

func TestMissingRightsAreNamed(t *testing.T) {
	namespace := cluster.Namespace(t)
	locked := func(s *record.Store) error {
		return s.Locked(t.Context(), record.Lock{Wait: true}, func(context.Context, *record.Hold) error { return errors.New("it is locked") })
	}
	tests := map[string]struct {
		may  []rbacv1.PolicyRule
		do   func(s *record.Store) error
		want string
	}{
		"lock, no rights": {nil, locked, `get leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `},
		"lock, only look": {
			[]rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}},
			locked, `create leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `,
		},
		"holding": {
			nil, func(s *record.Store) error { _, err := s.Holding(t.Context()); return err },
			`get leases.coordination.k8s.io runlevel-release-web in namespace "` + namespace + `": `,
		},
		"load": {
			nil, func(s *record.Store) error { _, _, err := s.Load(t.Context()); return err },
			`get configmaps runlevel-release-web in namespace "` + namespace + `": `,
		},
		"save": {
			nil, func(s *record.Store) error { return s.Save(t.Context(), &record.Record{Release: "web"}) },
			`create configmaps runlevel-release-web in namespace "` + namespace + `": `,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client, account := weak(t, namespace, test.may)
			err := test.do(record.NewStore(client, namespace, "web"))
			if err == nil || !strings.HasPrefix(err.Error(), `release "web": `+test.want) || !strings.Contains(err.Error(), account) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("it says\n%v, want the release, %q and %s in one line", err, test.want, account)
			}
			if got := reason.Of(err); got != record.ReasonDenied {
				t.Errorf("its reason is %q, want %s", got, record.ReasonDenied)
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
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing is refused since the namespace is missing, which the server takes its time for.
func TestMissingNamespaceIsMadeFirst(t *testing.T) {
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
	err := record.NewStore(client, namespace, "web").Locked(t.Context(), record.Lock{}, func(context.Context, *record.Hold) error { return nil })
	want := []string{"GET " + namespace + " 404", "POST namespaces 201", "GET " + namespace + " 200", "POST leases 201"}
	if err != nil || !slices.Equal(asked, want) {
		t.Errorf("it asked %q, want %q; error %v", asked, want, err)
	}
}

// A readBody does something when it has been read.
type readBody struct {
	io.ReadCloser
	closed func()
}

func (b readBody) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// What we wrote last is not read again to free the lock, unless somebody else has written it since.
func TestLockIsFreedByOneRequest(t *testing.T) {
	for name, test := range map[string]struct {
		touch bool
		want  string
	}{
		"as it was written":   {false, "PUT"},
		"which was annotated": {true, "PUT GET PUT"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			var asked []string
			var hasEnded atomic.Bool
			renewed := make(chan struct{}) // which it is at once
			renew := sync.OnceFunc(func() { close(renewed) })
			client := tapped(t, func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
				if hasEnded.Load() {
					asked = append(asked, request.Method)
				}
				answer, err := send()
				if err == nil && request.Method == http.MethodPut {
					answer.Body = readBody{answer.Body, renew}
				}
				return answer, err
			})
			err := record.NewStore(client, namespace, "web").Locked(t.Context(), record.Lock{Duration: time.Hour}, func(context.Context, *record.Hold) error {
				<-renewed
				if test.touch {
					found := lease(t, namespace)
					found.Annotations = map[string]string{"note": "ask Anna first"}
					if _, err := cluster.Client(t).CoordinationV1().Leases(namespace).Update(t.Context(), found, metav1.UpdateOptions{}); err != nil {
						t.Error(err)
					}
				}
				hasEnded.Store(true)
				return nil
			})
			if got := strings.Join(asked, " "); err != nil || got != test.want {
				t.Errorf("it asks %s, want %s; error %v", got, test.want, err)
			}
			if got := holder(lease(t, namespace)); got != "" {
				t.Errorf("in the end the lock is held by %q", got)
			}
		})
	}
}
