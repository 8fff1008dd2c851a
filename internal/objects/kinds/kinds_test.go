package kinds_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// Only the tests change the objects that they create.
var cluster = sandboxtest.New(sandbox.Options{
	Nodes:       sandbox.NoNodes,
	Controllers: []string{"serviceaccount-controller"},
})

func TestMain(m *testing.M) { os.Exit(cluster.Run(m)) }

// TestServerScopes compares scopes with those that an API server reports.
func TestServerScopes(t *testing.T) {
	lists, err := discovery.ServerPreferredResources(cluster.Client(t).Discovery())
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			kind := schema.GroupKind{Group: version.Group, Kind: resource.Kind}
			canBeApplied := strings.Contains(strings.Join(resource.Verbs, ","), "patch")
			if strings.Contains(resource.Name, "/") || !canBeApplied {
				continue
			}
			want := kinds.Cluster
			if resource.Namespaced {
				want = kinds.Namespaced
			}
			if got := kinds.ScopeOf(kind); got != want {
				t.Errorf("scope of %s: got %s, want %s", kind, got, want)
			}
			compared++
		}
	}
	if compared < 50 {
		t.Errorf("compared %d kinds, want at least 50", compared)
	}
}
