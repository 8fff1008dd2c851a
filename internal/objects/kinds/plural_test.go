package kinds_test

import (
	"testing"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

func TestPlural(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, resource, want string }{
		{"Pod", "pods", "Pods"},
		{"NetworkPolicy", "networkpolicies", "NetworkPolicies"},
		{"Endpoints", "endpoints", "Endpoints"},
		{"StorageClass", "storageclasses", "StorageClasses"},
		{"SecurityContextConstraints", "scc", "Scc"},
		{"Thing", "", ""},
	} {
		if got := kinds.Plural(c.kind, c.resource); got != c.want {
			t.Errorf("the plural of %s, %q, is %q, want %q", c.kind, c.resource, got, c.want)
		}
	}
}
