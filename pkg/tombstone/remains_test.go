package tombstone_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/runlevel/runlevel/pkg/cluster"
	"github.com/runlevel/runlevel/pkg/kinds"
	"github.com/runlevel/runlevel/pkg/tombstone"
)

func namespaceOf(name string) kinds.ID {
	return kinds.ID{Group: kinds.Namespace.Group, Kind: kinds.Namespace.Kind, Name: name}
}

// remaining asks until what is left in an object has all the parts.
func remaining(t *testing.T, c *cluster.Cluster, object kinds.ID, parts ...string) tombstone.Observation {
	t.Helper()
	var got tombstone.Observation
	eventually(t, func(ctx context.Context) error {
		got = tombstone.Observe(ctx, c, object, "")
		for _, part := range parts {
			if !strings.Contains(strings.Join(got.Remains, "\n"), part) {
				return fmt.Errorf("%+v\nwant it to say %q", got, part)
			}
		}
		return nil
	})
	return got
}

func TestANamespaceSaysWhatIsLeftInIt(t *testing.T) {
	t.Parallel()
	c, namespace := connect(t), testbed.Namespace(t)
	held := config(namespace, "held")
	bring(t, c, held, "example.com/hold")
	if got := tombstone.Observe(t.Context(), c, namespaceOf(namespace), ""); got.State != tombstone.Present || got.Remains != nil {
		t.Errorf("before it was deleted: %+v", got)
	}
	remove(t, c, namespaceOf(namespace))
	got := remaining(t, c, namespaceOf(namespace), "configmaps. has 1 resource instances", "example.com/hold in 1 resource instances")
	if line := got.Describe(c.Now()); got.State != tombstone.Terminating || !strings.HasPrefix(line, "terminating for ") || strings.Contains(line, "\n") {
		t.Errorf("%s: %s", got.State, line)
	}
	if len(got.Finalizers) != 0 {
		t.Errorf("the finalizer that every Namespace has is said to hold it: %v", got.Finalizers)
	}
	release(t, c, held)
	eventually(t, func(ctx context.Context) error {
		if got := tombstone.Observe(ctx, c, namespaceOf(namespace), ""); got.State != tombstone.Absent {
			return fmt.Errorf("it is empty, and found to be %+v", got)
		}
		return nil
	})
}

func TestANamespaceSaysThatAnAPIIsDown(t *testing.T) {
	c, namespace, home := connect(t), testbed.Namespace(t), testbed.Namespace(t)
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close() // so that nobody listens there
	dynamics, err := dynamic.NewForConfig(testbed.Sandbox(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	services := dynamics.Resource(schema.GroupVersionResource{Group: kinds.APIService.Group, Version: "v1", Resource: "apiservices"})
	if _, err := services.Create(t.Context(), parse(t, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {namespace: %s, name: down, port: %d}}`,
		home, port)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer services.Delete(context.Background(), "v1.down.example.com", metav1.DeleteOptions{}) // others can't be emptied while it is there

	remove(t, c, namespaceOf(namespace))
	remaining(t, c, namespaceOf(namespace), "Discovery failed for some groups", "down.example.com/v1")
	// Of the objects of that API nobody knows anything, whether they ever were or not.
	thing := kinds.ID{Group: "down.example.com", Kind: "Thing", Namespace: namespace, Name: "any"}
	if got := tombstone.Observe(t.Context(), c, thing, ""); got.State != tombstone.Unknown {
		t.Errorf("an object of the API is found to be %+v", got)
	}
	if err := services.Delete(t.Context(), "v1.down.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		for _, object := range []kinds.ID{thing, namespaceOf(namespace)} {
			if got := tombstone.Observe(ctx, c, object, ""); got.State != tombstone.Absent {
				return fmt.Errorf("the API is gone, and %s is found to be %+v", object.Name, got)
			}
		}
		return nil
	})
}

func TestADefinitionCountsItsInstances(t *testing.T) {
	t.Parallel()
	c, namespace := connect(t), testbed.Namespace(t)
	definition := define(t, c, "counted.example.com", "v1")
	var widgets []kinds.ID
	for _, name := range []string{"a", "b", "c"} {
		object := widget("counted.example.com", namespace, name)
		bring(t, c, object, "example.com/hold")
		widgets = append(widgets, object)
	}
	remove(t, c, definition)
	got := remaining(t, c, definition, "3 Widgets")
	if got.State != tombstone.Terminating || !slices.Contains(got.Finalizers, "customresourcecleanup.apiextensions.k8s.io") {
		t.Errorf("%+v", got)
	}
	release(t, c, widgets[0])
	remaining(t, c, definition, "2 Widgets")
	release(t, c, widgets[1])
	remaining(t, c, definition, "1 Widget")
	release(t, c, widgets[2])
	eventually(t, func(ctx context.Context) error {
		for _, object := range append(widgets, definition) {
			if got := tombstone.Observe(ctx, c, object, ""); got.State != tombstone.Absent {
				return fmt.Errorf("all are released, and %s is found to be %+v", object.Name, got)
			}
		}
		return nil
	})
}
