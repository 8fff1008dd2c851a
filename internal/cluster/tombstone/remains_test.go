package tombstone_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/tombstone"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

func namespaceOf(name string) kinds.ID {
	return kinds.ID{Group: kinds.Namespace.Group, Kind: kinds.Namespace.Kind, Name: name}
}

// remaining observes an object until the description of its remaining objects has all parts.
func remaining(t *testing.T, c *cluster.Cluster, object kinds.ID, parts ...string) tombstone.Observation {
	t.Helper()
	var got tombstone.Observation
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		got = tombstone.Observe(ctx, c, object, "")
		for _, part := range parts {
			if !strings.Contains(strings.Join(got.Remains, "\n"), part) {
				return fmt.Errorf("%+v\nwant it to contain %q", got, part)
			}
		}
		return nil
	})
	return got
}

func TestNamespaceReportsItsRemainingObjects(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	held := config(namespace, "held")
	bring(t, c, held, "example.com/hold")
	if got := tombstone.Observe(t.Context(), c, namespaceOf(namespace), ""); got.State != tombstone.Present ||
		got.Remains != nil {
		t.Errorf("before the delete: got %+v", got)
	}
	remove(t, c, namespaceOf(namespace))
	// The namespace controller takes five seconds to look. Until then it is not known.
	if got := tombstone.Observe(t.Context(), c, namespaceOf(namespace), ""); !got.IsHeld() &&
		!strings.HasSuffix(got.Describe(c.Now()), "(the namespace controller has not looked into it yet)") {
		t.Errorf("at first: %+v", got)
	}
	got := remaining(t, c, namespaceOf(namespace),
		"ConfigMap held, held by finalizer example.com/hold, which runlevel has set")
	if !got.IsHeld() || strings.Contains(strings.Join(got.Remains, "\n"), "resource instances") {
		t.Errorf("%+v", got)
	}
	if line := got.Describe(c.Now()); got.State != tombstone.Terminating ||
		!strings.HasPrefix(line, "terminating for ") || strings.Contains(line, "\n") {
		t.Errorf("%s: %s", got.State, line)
	}
	if len(got.Finalizers) != 0 {
		t.Errorf("the finalizer of every Namespace is reported: %v", got.Finalizers)
	}
	release(t, c, held)
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		if got := tombstone.Observe(ctx, c, namespaceOf(namespace), ""); got.State != tombstone.Absent {
			return fmt.Errorf("got %+v of an empty Namespace", got)
		}
		return nil
	})
}

// TestANamespaceNamesPods deletes a Namespace with a Pod. The namespace controller does not count Pods, which are
// deleted first, so its conditions report no remaining objects.
func TestANamespaceNamesPods(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	pod := kinds.ID{Kind: "Pod", Namespace: namespace, Name: "held"}
	resource := find(t, c, pod)
	if _, err := c.In(resource, namespace).Create(t.Context(), sandboxtest.ParseObject(t, `
apiVersion: v1
kind: Pod
metadata: {name: held, finalizers: [example.com/hold]}
spec: {containers: [{name: a, image: a}]}`), metav1.CreateOptions{FieldManager: "some-operator"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = setFinalizers(context.Background(), c, resource, pod, "null") })
	remove(t, c, namespaceOf(namespace))
	if got := remaining(t, c, namespaceOf(namespace),
		"Pod held, held by finalizer example.com/hold, which some-operator has set"); !got.IsHeld() {
		t.Errorf("%+v", got)
	}
}

func TestRemainingObjectsAreGrouped(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		bring(t, c, config(namespace, name), "example.com/hold")
	}
	bring(t, c, config(namespace, "f"), "example.com/other")
	remove(t, c, namespaceOf(namespace))
	got := remaining(t, c, namespaceOf(namespace),
		"5 ConfigMaps: a, b, c and 2 more, held by finalizer example.com/hold")
	if len(got.Remains) != 2 || !strings.HasPrefix(got.Remains[0], "ConfigMap f, held by finalizer example.com/other") {
		t.Errorf("%q", got.Remains)
	}
}

// TestNamespaceWithoutRightsHasCounts expects the numbers in the conditions of the Namespace.
func TestNamespaceWithoutRightsHasCounts(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	bring(t, c, config(namespace, "held"), "example.com/hold")
	rbac, reader, meta := testbed.Client(t).RbacV1(), rest.CopyConfig(testbed.Sandbox(t).Config),
		metav1.ObjectMeta{Name: "namespace-reader"}
	reader.Impersonate.UserName = meta.Name
	may := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}}
	if _, err := rbac.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{may}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: meta.Name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove(t, c, namespaceOf(namespace))
	got := remaining(t, sandboxtest.Connect(t, reader), namespaceOf(namespace), "configmaps. has 1 resource instances",
		"example.com/hold in 1 resource instances")
	if !got.IsHeld() {
		t.Errorf("%+v", got)
	}
}

func TestNamespaceReportsThatAnAPIIsDown(t *testing.T) {
	c, namespace, home := testbed.Connect(t), testbed.Namespace(t), testbed.Namespace(t)
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close() // so that no server listens there
	dynamics, err := dynamic.NewForConfig(testbed.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	services := dynamics.Resource(schema.GroupVersionResource{
		Group:    kinds.APIService.Group,
		Version:  "v1",
		Resource: "apiservices",
	})
	if _, err := services.Create(t.Context(), sandboxtest.ParseObject(t, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: %s, name: down, port: %d}}`,
		home, port)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// other namespaces can't be emptied while it exists
	defer services.Delete(context.Background(), "v1.down.example.com", metav1.DeleteOptions{})

	remove(t, c, namespaceOf(namespace))
	remaining(t, c, namespaceOf(namespace), "Discovery failed for some groups", "down.example.com/v1")
	// Nothing is known of the objects of that API, whether they ever existed or not.
	thing := kinds.ID{Group: "down.example.com", Kind: "Thing", Namespace: namespace, Name: "any"}
	if got := tombstone.Observe(t.Context(), c, thing, ""); got.State != tombstone.Unknown {
		t.Errorf("an object of the API is found to be %+v", got)
	}
	if err := services.Delete(t.Context(), "v1.down.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		for _, object := range []kinds.ID{thing, namespaceOf(namespace)} {
			if got := tombstone.Observe(ctx, c, object, ""); got.State != tombstone.Absent {
				return fmt.Errorf("the API is not served, and the observation of %s is %+v", object.Name, got)
			}
		}
		return nil
	})
}

func TestADefinitionCountsItsInstances(t *testing.T) {
	t.Parallel()
	c, namespace := testbed.Connect(t), testbed.Namespace(t)
	definition := define(t, c, "counted.example.com", "v1")
	var widgets []kinds.ID
	for _, name := range []string{"a", "b", "c"} {
		object := widget("counted.example.com", namespace, name)
		bring(t, c, object, "example.com/hold")
		widgets = append(widgets, object)
	}
	remove(t, c, definition)
	got := remaining(t, c, definition,
		"3 Widgets: "+namespace+"/a, "+namespace+"/b, "+namespace+"/c, held by finalizer example.com/hold")
	if got.State != tombstone.Terminating || len(got.Finalizers) != 0 || !got.IsHeld() {
		t.Errorf("%+v", got)
	}
	release(t, c, widgets[0])
	remaining(t, c, definition, "2 Widgets")
	release(t, c, widgets[1])
	remaining(t, c, definition, "Widget "+namespace+"/c, held by finalizer example.com/hold")
	release(t, c, widgets[2])
	sandboxtest.EventuallySucceeds(t, func(ctx context.Context) error {
		for _, object := range append(widgets, definition) {
			if got := tombstone.Observe(ctx, c, object, ""); got.State != tombstone.Absent {
				return fmt.Errorf("all are released, and %s is found to be %+v", object.Name, got)
			}
		}
		return nil
	})
}
