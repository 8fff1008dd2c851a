package tombstone_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

var testbed = sandboxtest.New(sandbox.Options{Nodes: sandbox.NoNodes})

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

func TestStatesOfAnObject(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	object := config(namespace, "held")
	if got := tombstone.Observe(t.Context(), c, object, ""); got.State != tombstone.Absent {
		t.Errorf("before the object was created: got %+v", got)
	}

	made := bring(t, c, object, "example.com/hold", "example.com/keep")
	maker := "runlevel at " + made.GetCreationTimestamp().UTC().Format(time.RFC3339)
	wanted := tombstone.Observation{State: tombstone.Present, UID: made.GetUID(), MadeBy: maker}
	if diff := cmp.Diff(wanted, tombstone.Observe(t.Context(), c, object, "")); diff != "" {
		t.Errorf("made (-want +got):\n%s", diff)
	}
	wanted.Requested = made.GetUID()
	if diff := cmp.Diff(wanted, tombstone.Observe(t.Context(), c, object, made.GetUID())); diff != "" {
		t.Errorf("recorded, but not yet deleted (-want +got):\n%s", diff)
	}

	remove(t, c, object)
	deleted, err := c.Client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wanted = tombstone.Observation{
		State: tombstone.Terminating, UID: made.GetUID(), Requested: made.GetUID(),
		Since: deleted.DeletionTimestamp.Time, Finalizers: deleted.Finalizers,
	}
	if diff := cmp.Diff(wanted, tombstone.Observe(t.Context(), c, object, made.GetUID())); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	// Another process, which has never seen the object, observes the same.
	wanted.Requested = ""
	if diff := cmp.Diff(wanted, tombstone.Observe(t.Context(), testbed.Connect(t), object, "")); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}

	release(t, c, object)
	if got := tombstone.Observe(t.Context(), c, object, made.GetUID()); got.State != tombstone.Absent ||
		got.IsPending() {
		t.Errorf("after its finalizers went: %+v", got)
	}
}

func TestRecreatedObjectHasItsCreator(t *testing.T) {
	c := testbed.Connect(t)
	for name, test := range map[string]struct {
		data   map[string]string
		wanted string
	}{
		"by annotation": {map[string]string{"key": "value"}, "Köchin ☃"},
		"with nothing":  {nil, "an unknown manager"}, // the API server keeps no manager of an empty patch
	} {
		t.Run(name, func(t *testing.T) {
			namespace := testbed.Namespace(t)
			object, maps := config(namespace, "phoenix"), c.Client.CoreV1().ConfigMaps(namespace)
			first := bring(t, c, object)
			remove(t, c, object)
			again, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "phoenix"},
				Data:       test.data,
			}, metav1.CreateOptions{FieldManager: "Köchin ☃"})
			if err != nil {
				t.Fatal(err)
			}
			patch := []byte(`{"data":{"later":"by another"}}`)
			if _, err := maps.Patch(t.Context(), "phoenix", types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: "a-controller"}); err != nil {
				t.Fatal(err)
			}
			wanted := tombstone.Observation{
				State: tombstone.Reappeared, UID: again.UID, Requested: first.GetUID(),
				MadeBy: test.wanted + " at " + again.CreationTimestamp.UTC().Format(time.RFC3339),
			}
			if diff := cmp.Diff(wanted, tombstone.Observe(t.Context(), c, object, first.GetUID())); diff != "" {
				t.Errorf("recreated (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreatorIsTheOldestManager(t *testing.T) {
	c := sandboxtest.Connect(t, answering(t, http.StatusOK, `{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": {"name": "phoenix", "namespace": "default", "uid": "second", "creationTimestamp": "2026-11-20T10:00:00Z", "managedFields": [
			{"manager": "an-applier", "operation": "Apply", "time": "2026-11-20T12:00:00Z"},
			{"manager": "a-status-writer", "operation": "Update", "time": "2026-11-20T10:00:00Z", "subresource": "status"},
			{"manager": "kubectl-create\n", "operation": "Update", "time": "2026-11-20T10:00:00Z"},
			{"manager": "a-late-comer", "operation": "Update", "time": "2026-11-20T11:00:00Z"},
			{"manager": "without-time", "operation": "Update"}]}}`))
	got := tombstone.Observe(t.Context(), c, config("default", "phoenix"), "first")
	if wanted := `kubectl-create\n at 2026-11-20T10:00:00Z`; got.State != tombstone.Reappeared || got.MadeBy != wanted {
		t.Errorf("made by %s: %+v\nwant %s", got.MadeBy, got, wanted)
	}
}

// A pod's deletionTimestamp is when its grace period ends.
func TestAGracePeriodDoesNotCountAsTheFuture(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	pods := c.Client.CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "slow"},
		Spec: corev1.PodSpec{
			NodeName:   "nowhere",
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/slow"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const grace = 6 * time.Hour
	if err := pods.Delete(t.Context(), "slow",
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(grace / time.Second))}); err != nil {
		t.Fatal(err)
	}
	got := tombstone.Observe(t.Context(), c, kinds.ID{Kind: "Pod", Namespace: namespace, Name: "slow"}, pod.UID)
	if age := c.Now().Sub(got.Since); got.State != tombstone.Terminating || age < -time.Minute || age > time.Hour {
		t.Errorf("the object has been terminating for %s: %+v", age, got)
	}
}

func TestTheSameNameInAnotherGroupIsAnotherObject(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	first, second := widget("first.example.com", namespace, "w"), widget("second.example.com", namespace, "w")
	for _, object := range []kinds.ID{first, second} {
		define(t, c, object.Group, "v1")
		bring(t, c, object)
	}
	remove(t, c, first)
	if got := tombstone.Observe(t.Context(), c, first, ""); got.State != tombstone.Absent {
		t.Errorf("the deleted one: %+v", got)
	}
	if got := tombstone.Observe(t.Context(), c, second, ""); got.State != tombstone.Present {
		t.Errorf("its namesake: %+v", got)
	}
}

// A 404 may mean that the path is not served, not that the object was deleted.
func TestAnObjectIsFoundInEachServedVersion(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	object := widget("moving.example.com", namespace, "w")
	define(t, c, object.Group, "v1alpha1")
	made := bring(t, c, object)

	define(t, testbed.Connect(t), object.Group, "v1") // another client defines v1: v1alpha1 is no longer served
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		switch got := tombstone.Observe(ctx, c, object, made.GetUID()); got.State {
		case tombstone.Present:
			if resource, err := c.FindKind(ctx, object.GroupKind()); err == nil && resource.Version == "v1" {
				return nil
			}
			return fmt.Errorf("the old version is still requested")
		case tombstone.Unknown:
			return fmt.Errorf("%+v", got) // the server's list is a moment behind
		default:
			t.Fatalf("got %+v of an existing object", got)
			return nil
		}
	})
}

func TestObjectOfAnUnservedKindIsAbsent(t *testing.T) {
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	object := widget("fading.example.com", namespace, "w")
	definition := define(t, c, object.Group, "v1")
	made := bring(t, c, object)
	remove(t, testbed.Connect(t), definition)
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		if got := tombstone.Observe(ctx, c, object, made.GetUID()); got.State != tombstone.Absent {
			return fmt.Errorf("its kind is not served, and the observation is %+v", got)
		}
		return nil
	})
}

func TestUnreadableObjectIsUnknown(t *testing.T) {
	namespace := testbed.Namespace(t)
	admin := testbed.Connect(t)
	bring(t, admin, config(namespace, "there"))
	for name, test := range map[string]struct {
		config *rest.Config
		object kinds.ID
		wanted string
	}{
		"no right to": {testbed.Account(t, namespace, "weak"), config(namespace, "there"),
			`configmaps "there" is forbidden: User "system:serviceaccount:` + namespace + `:weak" cannot get resource`},
		"a server's error": {answering(t, http.StatusInternalServerError,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"etcd ☃\n\u001b[31mis away"}`), config(namespace, "there"), `etcd ☃\n\x1b[31mis away`},
		"no backend": {answering(t, http.StatusServiceUnavailable, ""), config(namespace, "there"),
			"the server is currently unable to handle the request"},
		"a strange 404": {answering(t, http.StatusNotFound, "404 page not found"), config(namespace, "there"),
			"the server could not find the requested resource"},
		"without namespace": {testbed.Sandbox(t).Config, config("", "there"),
			"kind ConfigMap is namespaced, and no namespace is given"},
		"without name": {testbed.Sandbox(t).Config, config(namespace, ""), "name is required"},
		"no server at all": {&rest.Config{Host: "http://localhost:1"}, config(namespace, "there"),
			"connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tombstone.Observe(t.Context(), sandboxtest.Connect(t, test.config), test.object, "")
			if got.State != tombstone.Unknown || !got.IsPending() || !strings.Contains(got.Why, test.wanted) ||
				strings.Contains(got.Why, "\n") {
				t.Errorf("%+v\nwant a reason with %s", got, test.wanted)
			}
		})
	}
}

// answering is a way to the server on which a handler answers for ConfigMaps.
func answering(t *testing.T, status int, body string) *rest.Config {
	t.Helper()
	return sandboxtest.Tap(testbed.Sandbox(t).Config,
		func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
			if !strings.Contains(request.URL.Path, "/configmaps/") {
				return send.RoundTrip(request)
			}
			return &http.Response{
				StatusCode: status,
				Body:       io.NopCloser(strings.NewReader(body)),
				Request:    request,
				Header:     http.Header{"Content-Type": {"application/json"}},
			}, nil
		})
}
