// Package sandboxtest shares one sandbox among the tests of a package.
//
// A control plane needs three seconds to start and a gigabyte to run, so most tests share one, each in its own
// namespace. Only those that break a control plane start another one. The sandbox starts when the first test needs it.
//
// New is the function to start from:
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
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

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

// New returns the sandbox of a package's tests, which does not run yet.
func New(o sandbox.Options) *SharedSandbox {
	o.Progress = os.Stderr
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
func (c *SharedSandbox) Run(m *testing.M) int {
	code := m.Run()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return code
	}
	if err := c.running.Stop(); err != nil {
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

// Start starts a sandbox for one test, and stops it afterwards.
func Start(t testing.TB, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	NeedControlPlane(t)
	o.Progress = os.Stderr
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
func (c *SharedSandbox) Sandbox(t testing.TB) *sandbox.Sandbox {
	t.Helper()
	NeedControlPlane(t)
	s, err := c.start()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Client returns the admin's client.
func (c *SharedSandbox) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(c.Sandbox(t).Config)
}

// Namespace creates a namespace for one test, and deletes it afterwards.
func (c *SharedSandbox) Namespace(t testing.TB) string {
	t.Helper()
	namespaces := c.Client(t).CoreV1().Namespaces()
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
