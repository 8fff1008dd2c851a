package patch_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/machines/patch"
)

// TestIsLackOfRights has the texts of RBAC and of a webhook, of which either may report that something cannot be done.
func TestIsLackOfRights(t *testing.T) {
	forbidden := func(text string) error {
		return fmt.Errorf("apply: %w",
			apierrors.NewForbidden(schema.GroupResource{Group: "test.dev", Resource: "disks"}, "a", errors.New(text)))
	}
	const byRBAC = `User "system:serviceaccount:machines:machine-controller" cannot patch resource "disks" in API group "test.dev" in the namespace "shop"`
	for text, want := range map[string]bool{
		byRBAC: true,
		byRBAC + `: RBAC: clusterrole.rbac.authorization.k8s.io "disks" not found`: true,
		`spec.size cannot be changed`:                              false,
		`exceeded quota: disks, requested: count/disks.test.dev=1`: false,
	} {
		if got := patch.IsLackOfRights(forbidden(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if patch.IsLackOfRights(errors.New(byRBAC)) {
		t.Error("got true for an error that does not come from the API server, want false")
	}
}
