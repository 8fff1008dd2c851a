// Package sandboxtest shares one sandbox among the tests of a package.
//
// A control plane needs three seconds to start and a gigabyte to run, so most tests share one, each in its own
// namespace. Only tests that break a control plane start another one. The sandbox starts when the first test needs it.
// It stops in TestMain, which alone runs after all tests of a package. Without that, the files of the sandbox would
// stay until another sandbox starts, and on macOS, some processes would keep running.
//
// Start with New:
//
//	var cluster = sandboxtest.New(sandbox.Options{})
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }
//
//	func TestSomething(t *testing.T) {
//		client := cluster.Client(t)
//		namespace := cluster.Namespace(t)
//		…
package sandboxtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
	"github.com/runlevel/runlevel/internal/sandbox"
)

// patience is the timeout of Await, much longer than every wait that succeeds, even on a busy machine.
const patience = 5 * time.Minute

// A SharedSandbox is a sandbox that starts when the first test needs it.
type SharedSandbox struct {
	start func() (*sandbox.Sandbox, error)

	mu      sync.Mutex
	running *sandbox.Sandbox
}

// kubernetesEnv names the version that the control planes of tests emulate, as in 1.34.
const kubernetesEnv = "RUNLEVEL_TEST_KUBERNETES"

// New returns the sandbox of a package's tests, which does not run yet.
func New(o sandbox.Options) *SharedSandbox {
	o.Kubernetes, o.Progress = cmp.Or(o.Kubernetes, os.Getenv(kubernetesEnv)), os.Stderr
	c := &SharedSandbox{}
	c.start = sync.OnceValues(func() (*sandbox.Sandbox, error) {
		s, err := sandbox.Start(context.Background(), o)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running = s
		return s, err
	})
	return c
}

// Run runs the tests of a package, for its TestMain, and stops the sandbox.
func (ss *SharedSandbox) Run(m *testing.M) int {
	code := m.Run()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.running == nil {
		return code
	}
	if err := ss.running.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the sandbox:", err)
		return 1
	}
	return code
}

// NeedControlPlane skips a test in "go test -short" that needs a control plane.
func NeedControlPlane(t testing.TB) {
	t.Helper()
	SkipInShort(t, "needs a control plane")
}

// SkipInShort skips a test in "go test -short", with the requirement in the message.
func SkipInShort(t testing.TB, needs string) {
	t.Helper()
	if testing.Short() {
		t.Skip(needs + `: "make test" runs it`)
	}
}

// IsThorough reports whether a test tries all its cases, as in "make test-thorough": for example, it kills an update at
// each write, and not at every fifth.
func IsThorough() bool { return os.Getenv("RUNLEVEL_TEST_THOROUGH") != "" }

// SkipUnlessThorough skips a test that takes minutes, or tests a rare case.
func SkipUnlessThorough(t testing.TB) {
	t.Helper()
	if !IsThorough() {
		t.Skip(`takes minutes, or tests a rare case: "make test-thorough" runs it`)
	}
}

// Start starts a sandbox for one test, and stops it afterwards.
func Start(t testing.TB, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	NeedControlPlane(t)
	o.Kubernetes, o.Progress = cmp.Or(o.Kubernetes, os.Getenv(kubernetesEnv)), os.Stderr
	s, err := sandbox.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error("stop the sandbox:", err)
		}
	})
	return s
}

// Sandbox returns the sandbox, and starts it if necessary.
func (ss *SharedSandbox) Sandbox(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	NeedControlPlane(t)
	s, err := ss.start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Client returns the admin's client.
func (ss *SharedSandbox) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(ss.Sandbox(t).Config)
}

// Namespace creates a namespace for one test, and deletes it afterwards.
func (ss *SharedSandbox) Namespace(t testing.TB) string {
	t.Helper()
	namespaces := ss.Client(t).CoreV1().Namespaces()
	namespace, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal("create a namespace:", err)
	}
	t.Cleanup(func() {
		// The context of the test has ended already.
		_ = namespaces.Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
	})
	return namespace.Name
}

// Await watches an object, by its key "namespace/name" or "name", until wanted returns true, and returns the object.
// It calls wanted with nil while the object does not exist. At the timeout, the test fails with the last state of the
// object.
func Await[T any](t testing.TB, c *SharedSandbox, resource schema.GroupVersionResource, key string,
	wanted func(*T) bool) *T {
	t.Helper()
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen, err := objectwatch.Await(ctx, client.Resource(resource).Namespace(namespace), name,
		func(object *unstructured.Unstructured) bool { return wanted(typed[T](t, object)) })
	if err != nil {
		last, _ := yaml.Marshal(seen)
		t.Fatalf("wait for %s %s: %v; its last state:\n%s", resource.Resource, key, err, last)
	}
	return typed[T](t, seen)
}

func typed[T any](t testing.TB, object *unstructured.Unstructured) *T {
	if object == nil {
		return nil
	}
	result := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, result); err != nil {
		t.Errorf("read %s: %v", object.GetName(), err)
	}
	return result
}

// Account creates a service account with rights in its namespace, and returns its client
// configuration. The API server applies the rights after a moment.
func (ss *SharedSandbox) Account(t testing.TB, namespace, name string, may ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	accounts := ss.Client(t).CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(may) > 0 {
		ss.allow(t, namespace, name, may)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(ss.Sandbox(t).Config)
	config.BearerToken = token.Status.Token
	return config
}

// allow binds an account to a new role in its namespace.
func (ss *SharedSandbox) allow(t testing.TB, namespace, name string, may []rbacv1.PolicyRule) {
	t.Helper()
	meta, rbac := metav1.ObjectMeta{Name: name}, ss.Client(t).RbacV1()
	if _, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: may},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Connect returns a connection to the sandbox, as its administrator.
func (ss *SharedSandbox) Connect(t testing.TB) *cluster.Cluster {
	t.Helper()
	return Connect(t, ss.Sandbox(t).Config)
}

// ConnectAs returns a connection to the sandbox as a user with the rights of system:authenticated.
func (ss *SharedSandbox) ConnectAs(t testing.TB, user string) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(ss.Sandbox(t).Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return Connect(t, config)
}

// Connect returns a connection to a cluster.
func Connect(t testing.TB, config *rest.Config) *cluster.Cluster {
	t.Helper()
	connected, err := cluster.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return connected
}

// Apply applies a manifest as Runlevel does.
func Apply(t testing.TB, c *cluster.Cluster, manifest string) *unstructured.Unstructured {
	t.Helper()
	return ApplyObject(t, c, ParseObject(t, manifest)).Object
}

// ApplyObject applies an object as Runlevel does.
func ApplyObject(t testing.TB, c *cluster.Cluster, object *unstructured.Unstructured) cluster.WriteResult {
	t.Helper()
	resource, err := c.Find(t.Context(), object.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	applied, err := c.Apply(t.Context(), resource, object, cluster.Force)
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return applied
}

// ParseObject returns the object of a manifest.
func ParseObject(t testing.TB, manifest string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// pollInterval is the interval at which the functions of this file poll.
const pollInterval = 100 * time.Millisecond

// Eventually polls until isWanted returns true. At the timeout, the test fails with the text, which describes the
// condition.
func Eventually(t testing.TB, what string, isWanted func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) { return isWanted(ctx), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// EventuallySucceeds polls until try returns no error. At the timeout, the test fails with the last error.
func EventuallySucceeds(t testing.TB, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, patience, true,
		func(ctx context.Context) (bool, error) {
			last = try(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// ReadOnly returns a configuration for reading: every other request fails the test, except for dry runs, and reviews
// of access and of tokens.
func ReadOnly(t testing.TB, config *rest.Config) *rest.Config {
	return Tap(config, func(request *http.Request, send http.RoundTripper) (*http.Response, error) {
		// access and self-subject reviews
		isQuestion := request.Method == http.MethodGet || strings.HasPrefix(request.URL.Path, "/apis/auth")
		if !isQuestion && request.URL.Query().Get("dryRun") != metav1.DryRunAll {
			body, err := io.ReadAll(request.Body) // deletes have dryRun in the body
			if err != nil {
				return nil, err
			}
			if request.Method != http.MethodDelete || !bytes.Contains(body, []byte(`"dryRun":["All"]`)) {
				t.Errorf("unexpected write: %s %s", request.Method, request.URL)
			}
			request = request.Clone(request.Context())
			request.Body = io.NopCloser(bytes.NewReader(body))
		}
		return send.RoundTrip(request)
	})
}
