package sandboxtest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/runlevel/runlevel/internal/cluster"
)

// Connect returns a connection to the sandbox, as its administrator.
func (c *SharedSandbox) Connect(t testing.TB) *cluster.Cluster {
	t.Helper()
	return Connect(t, c.Sandbox(t).Config)
}

// ConnectAs returns a connection to the sandbox as a user with the rights of system:authenticated.
func (c *SharedSandbox) ConnectAs(t testing.TB, user string) *cluster.Cluster {
	t.Helper()
	config := rest.CopyConfig(c.Sandbox(t).Config)
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
